"use strict";
// What the page shows: figures as JSON, and the maps of each sentence as deflated bytes.

const DATA = JSON.parse(document.getElementById("data").textContent);

// A byte is 255 times the square root of a number.
const NUMBER = Float32Array.from({ length: 256 }, (_, byte) => (byte / 255) ** 2);

async function inflate(text) {
  const packed = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// "decoder.1.cross" is of the chain "decoder-cross"; alignments have the name of their chain.
function chainOf(name) {
  const [stack, , kind] = name.split(".");
  return kind ? `${stack}-${kind}` : name;
}

// Finds the maps of a sentence in its bytes: part by part, then draw by draw, head by head.
function layOut(sentence, bytes) {
  let at = 0;
  const found = (maps) => {
    const side = sentence.sides[chainOf(maps.name)];
    const cells = side.rows.length * side.columns.length;
    const heads = () => maps.heads.map(() => bytes.subarray(at, (at += cells)));
    const parts = {};
    for (const part of maps.parts) parts[part] = heads();
    return { ...maps, side, parts, draws: Array.from({ length: maps.draws }, heads) };
  };
  return { maps: sentence.maps.map(found), alignments: sentence.alignments.map(found) };
}

// Opened when it is first looked at, and kept.
function openSentence(sentence) {
  sentence.opened ??= inflate(sentence.bytes).then((bytes) => layOut(sentence, bytes));
  return sentence.opened;
}

// The numbers of a row of a map.
function readRow(map, side, row) {
  const width = side.columns.length;
  return Array.from(map.subarray(row * width, (row + 1) * width), (byte) => NUMBER[byte]);
}

// The end of a colour scale: but one in two hundred of the numbers that are not 0 lie below it.
function topOf(maps) {
  const counts = new Array(256).fill(0);
  for (const map of maps) for (const byte of map) counts[byte] += 1;
  let left = (counts.reduce((sum, count) => sum + count, 0) - counts[0]) / 200,
    top = 255;
  while (top > 1 && (left -= counts[top]) >= 0) top -= 1;
  return NUMBER[top];
}

const largestOf = (map) => NUMBER[map.reduce((top, byte) => Math.max(top, byte), 1)];

function write(value, digits = 3) {
  if (value === null || value === undefined) return "";
  const small = value !== 0 && Math.abs(value) < 0.5 * 10 ** -digits;
  return (small ? value.toExponential(1) : value.toFixed(digits)).replace("-", "−");
}

const isKnown = (value) => value !== null && value !== undefined;
const isFull = (found) => Object.keys(found ?? {}).length > 0;
