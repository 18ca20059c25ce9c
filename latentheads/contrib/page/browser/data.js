"use strict";
// The data of the page: JSON, with the maps of each sentence as deflated bytes.

const DATA = JSON.parse(document.getElementById("data").textContent);

// A byte is 255 times the square root of a number.
const NUMBER = Float32Array.from({ length: 256 }, (_, byte) => (byte / 255) ** 2);

async function inflate(text) {
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// The attention type of "decoder.1.cross" is "decoder-cross"; that of alignments is their name.
function attentionTypeOf(name) {
  const [stack, , kind] = name.split(".");
  return kind ? `${stack}-${kind}` : name;
}

// Locates the maps of a sentence in its bytes: by part, then by sample, then by head.
function layOut(sentence, bytes) {
  let offset = 0;
  const locate = (maps) => {
    const side = sentence.sides[attentionTypeOf(maps.name)];
    const cells = side.rows.length * side.columns.length;
    const heads = () => maps.heads.map(() => bytes.subarray(offset, (offset += cells)));
    const parts = {};
    for (const part of maps.parts) parts[part] = heads();
    return { ...maps, side, parts, draws: Array.from({ length: maps.draws }, heads) };
  };
  return { maps: sentence.maps.map(locate), alignments: sentence.alignments.map(locate) };
}

// Unpacks the maps of a sentence at its first use.
function openSentence(sentence) {
  sentence.opened ??= inflate(sentence.bytes).then((bytes) => layOut(sentence, bytes));
  return sentence.opened;
}

// The weights of a row of a map.
function readRow(map, side, row) {
  const width = side.columns.length;
  return Array.from(map.subarray(row * width, (row + 1) * width), (byte) => NUMBER[byte]);
}

// The upper limit of a colour scale: the 99.5 % quantile of the non-zero weights.
function colourLimitOf(maps) {
  const counts = new Array(256).fill(0);
  for (const map of maps) for (const byte of map) counts[byte] += 1;
  let above = (counts.reduce((sum, count) => sum + count, 0) - counts[0]) / 200,
    limit = 255;
  while (limit > 1 && (above -= counts[limit]) >= 0) limit -= 1;
  return NUMBER[limit];
}

const largestOf = (map) => NUMBER[map.reduce((largest, byte) => Math.max(largest, byte), 1)];

function write(value, digits = 3) {
  if (value === null || value === undefined) return "";
  if (digits > 0 && Math.abs(value) >= 1e6) return value.toExponential(2).replace("e+", "e").replace("-", "−");
  const small = value !== 0 && Math.abs(value) < 0.5 * 10 ** -digits;
  return (small ? value.toExponential(1) : value.toFixed(digits)).replace("-", "−");
}

const isKnown = (value) => value !== null && value !== undefined;
const isFull = (object) => Object.keys(object ?? {}).length > 0;
