// What is drawn with: elements, colours, maps on a canvas, lines and bars as SVG.

function make(tag, given = {}, ...children) {
  const own = ["svg", "g", "path", "line", "rect", "circle", "text", "title"].includes(tag);
  const element = own ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

const styleOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// 256 colours between the stops that the style names, as [red, green, blue].
function rampOf(name) {
  const stops = styleOf(`--${name}`).split(",").map((stop) => stop.trim().match(/[0-9a-f]{2}/gi).map((hex) => parseInt(hex, 16)));
  return Array.from({ length: 256 }, (_, level) => {
    const place = (level / 255) * (stops.length - 1), low = Math.min(Math.floor(place), stops.length - 2);
    return stops[low].map((channel, which) => Math.round(channel + (stops[low + 1][which] - channel) * (place - low)));
  });
}

// A colour of a ramp, and black or white, whichever is read better on it.
function shadeOf(ramp, share) {
  const [red, green, blue] = ramp[Math.round(255 * Math.min(1, Math.max(0, share)))];
  const light = 0.299 * red + 0.587 * green + 0.114 * blue > 140;
  return `background: rgb(${red} ${green} ${blue}); color: ${light ? "#111" : "#fff"}`;
}

// One pixel a cell: the browser scales it, so that a large map costs no more than a small one.
function paint(canvas, map, side, top, ramp) {
  const width = side.columns.length, height = side.rows.length;
  canvas.width = width;
  canvas.height = height;
  const image = new ImageData(width, height);
  const levels = NUMBER.map((number) => Math.min(255, Math.round((255 * number) / top)));
  map.forEach((byte, cell) => image.data.set([...ramp[levels[byte]], 255], 4 * cell));
  canvas.getContext("2d").putImageData(image, 0, 0);
}

const LETTER = 6.3, LONGEST = 14; // pixels of a letter; letters of a label
const shorten = (text, most = LONGEST) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const widthOf = (names) => 12 + LETTER * Math.max(1, ...names.map((name) => shorten(name).length));

// Pixels of a cell, so that as many maps as possible stand side by side and can still be read.
function cellOf(columns, beside, room, number) {
  const fits = (maps) => Math.floor((room / maps - beside - 28) / columns);
  const least = columns > 30 ? 5 : 13;
  for (let maps = number; maps > 1; maps -= 1) if (fits(maps) >= least) return Math.min(22, fits(maps));
  return Math.max(3, Math.min(22, fits(1)));
}

// A map with the names of its rows and columns, the framed cells, and a frame around a row.
function drawMap(map, side, { title, note, ramp, top, room, number, onrow, links = side.links, control }) {
  const left = widthOf(side.rows), above = 0.82 * widthOf(side.columns) + 8;
  const columns = side.columns.length, rows = side.rows.length;
  const cell = cellOf(columns, left + 30, room, number);
  const canvas = make("canvas", { role: "img", "aria-label": `${title}: ${rows} rows, ${columns} columns`, style: `left: ${left}px; top: ${above}px; width: ${columns * cell}px; height: ${rows * cell}px` });
  paint(canvas, map, side, top, ramp);
  const every = Math.ceil(12 / cell), middle = cell / 2 + 4;
  const svg = make("svg", { width: left + columns * cell + 30, height: above + rows * cell + 4 });
  const names = side.rows.map((name, row) => row % every ? null : make("text", { x: left - 5, y: above + row * cell + middle, "text-anchor": "end" }, shorten(name)));
  svg.append(...names.filter(Boolean));
  side.columns.forEach((name, column) => {
    const x = left + column * cell + middle, turn = `rotate(-55 ${x} ${above - 5})`;
    if (column % every === 0) svg.append(make("text", { x, y: above - 5, transform: turn }, shorten(name)));
  });
  for (const [row, column] of links) svg.append(make("rect", { class: "gold", x: left + column * cell, y: above + row * cell, width: cell, height: cell }));
  const frame = make("rect", { class: "row", x: left - 1, width: columns * cell + 3, height: cell });
  svg.append(frame);
  const box = make("div", { class: "map", style: `width: ${left + columns * cell + 30}px` }, canvas, svg);
  const placeOf = (event) => {
    const inside = box.getBoundingClientRect();
    const row = Math.floor((event.clientY - inside.top - above) / cell), column = Math.floor((event.clientX - inside.left - left) / cell);
    return row >= 0 && row < rows ? [row, column >= 0 && column < columns ? column : null] : null;
  };
  box.addEventListener("pointermove", (event) => placeOf(event) && onrow(...placeOf(event), false));
  box.addEventListener("click", (event) => placeOf(event) && onrow(...placeOf(event), true));
  const mark = (row) => {
    frame.setAttribute("y", above + row * cell);
    names.forEach((name, place) => name?.classList.toggle("on", place === row));
  };
  return { figure: make("figure", {}, make("figcaption", {}, title, " ", make("small", {}, note)), make("div", { class: "wide" }, box), control ?? null), mark };
}

function drawScale(ramp, low, high, words) {
  const stops = [0, 64, 128, 191, 255].map((level) => `rgb(${ramp[level].join(" ")})`);
  return make("div", { class: "scale" }, low, make("i", { style: `background: linear-gradient(to right, ${stops.join(", ")})` }), make("span", {}, high), make("span", {}, words));
}

// One row of several maps: bars, a band around the first of them, and marks.
function drawRow(columns, { bars, band, marks, gold, top, room, label }) {
  const step = Math.max(5, Math.min(56, (room - 46) / columns.length)), height = 130;
  const below = step < 11 ? 6 : 0.82 * widthOf(columns) + 12, width = 42 + step * columns.length;
  const y = (value) => 8 + height * (1 - Math.min(1, value / top));
  const svg = make("svg", { width: width + 10, height: height + 14 + below, role: "img", "aria-label": label, style: "max-width: none" });
  for (const share of [0, 0.5, 1]) {
    svg.append(make("line", { x1: 38, x2: width, y1: y(share * top), y2: y(share * top), stroke: "var(--line)" }));
    svg.append(make("text", { x: 33, y: y(share * top) + 4, "text-anchor": "end" }, write(share * top, 2)));
  }
  const each = (step * 0.78) / bars.length;
  columns.forEach((name, column) => {
    const x = 42 + column * step, middle = x + (step * 0.78) / 2;
    if (gold.has(column)) svg.append(make("rect", { x: x - step * 0.08, y: 6, width: step * 0.94, height: height + 3, fill: "none", stroke: "var(--gold)", "stroke-width": 1.6 }));
    bars.forEach((bar, place) => {
      const at = y(bar.values[column]);
      svg.append(make("rect", { x: x + place * each, y: at, width: Math.max(1, each - 0.5), height: 8 + height - at, fill: bar.colour, opacity: 0.8 }, make("title", {}, `${name}: ${bar.name} ${write(bar.values[column])}`)));
    });
    if (band) svg.append(make("line", { x1: middle, x2: middle, y1: y(band.low[column]), y2: y(band.high[column]), stroke: "var(--band)", "stroke-width": Math.min(4, step / 4) }));
    if (marks) svg.append(make("line", { x1: x, x2: x + step * 0.78, y1: y(marks[column]), y2: y(marks[column]), stroke: "var(--prior)", "stroke-width": 2.5 }));
    if (step >= 11) svg.append(make("text", { x: middle, y: height + 20, "text-anchor": "end", transform: `rotate(-45 ${middle} ${height + 20})`, class: "name" }, shorten(name)));
  });
  return make("div", { class: "wide" }, svg);
}

// Round numbers between two ends; over decades 1, 2, 5, 10 ...
function ticksOf(low, high, decades) {
  if (decades) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) found.push(...[1, 2, 5].map((times) => times * 10 ** power));
    return found.filter((tick) => tick >= low && tick <= high);
  }
  const rough = (high - low) / 5 || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((times) => times * power >= rough);
  return Array.from({ length: 12 }, (_, place) => (Math.ceil(low / step) + place) * step).filter((tick) => tick <= high + step / 1e6);
}

// Lines over updates; a line may break where a number is not known.
function drawLines(title, note, steps, lines, { decades = false, room = 560, zero = false } = {}) {
  const known = lines.flatMap((line) => line.values).filter((value) => Number.isFinite(value) && (!decades || value > 0));
  let low = zero ? 0 : Math.min(...known), high = Math.max(...known);
  if (low === high) high = low + (Math.abs(low) || 1) / 10;
  const scaled = decades && low > 0 && high > 4 * low, at = scaled ? Math.log10 : (value) => value;
  const width = Math.min(room, 620), height = 240, first = steps[0], last = steps.at(-1);
  const x = (step) => 48 + ((width - 60) * (step - first)) / (last - first || 1);
  const y = (value) => 10 + (height - 36) * (1 - (at(value) - at(low)) / (at(high) - at(low)));
  const svg = make("svg", { width, height: height + 18, viewBox: `0 0 ${width} ${height + 18}`, role: "img", "aria-label": title });
  for (const tick of ticksOf(low, high, scaled)) {
    svg.append(make("line", { x1: 48, x2: width - 12, y1: y(tick), y2: y(tick), stroke: "var(--line)" }));
    svg.append(make("text", { x: 42, y: y(tick) + 4, "text-anchor": "end" }, String(+tick.toPrecision(3))));
  }
  for (const tick of ticksOf(first, last, false)) svg.append(make("text", { x: x(tick), y: height - 8, "text-anchor": "middle" }, tick.toLocaleString("en")));
  svg.append(make("text", { x: (width + 36) / 2, y: height + 12, "text-anchor": "middle" }, "updates"));
  for (const line of lines) {
    const points = line.values.map((value, place) => [x(line.steps?.[place] ?? steps[place]), value]).filter(([, value]) => Number.isFinite(value) && (!scaled || value > 0));
    const path = points.map(([px, value], place) => `${place ? "L" : "M"}${px.toFixed(1)} ${y(value).toFixed(1)}`).join("");
    svg.append(make("path", { d: path, fill: "none", stroke: line.colour, "stroke-width": line.thin ? 1.2 : 2.2, "stroke-dasharray": line.dash }));
    if (points.length < 40 && !line.thin) for (const [px, value] of points) svg.append(make("circle", { cx: px, cy: y(value), r: 2.6, fill: line.colour }, make("title", {}, `${line.name}: ${write(value, 4)}`)));
  }
  const keys = lines.map((line) => make("span", {}, make("i", { class: "line", style: `border-top-style: ${line.dash ? "dashed" : "solid"}; border-color: ${line.colour}` }), line.name));
  return make("figure", { class: "chart", "data-lines": lines.length }, make("figcaption", {}, title, " ", make("small", {}, note)), svg, make("div", { class: "keys" }, keys));
}
