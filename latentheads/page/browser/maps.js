// Maps on a canvas: the weights of a head, or the probabilities of a law.

const LETTER = 7.8; // pixels of a letter in bold, as the chosen row has it
const LONGEST = 14; // letters of a label
const shorten = (text, most = LONGEST) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const widthOf = (names) => 12 + LETTER * Math.max(1, ...names.map((name) => shorten(name).length));

// One pixel a cell: the browser scales it, so that a large map costs no more than a small one.
function paint(canvas, map, side, top, ramp) {
  canvas.width = side.columns.length;
  canvas.height = side.rows.length;
  const image = new ImageData(canvas.width, canvas.height);
  const levels = NUMBER.map((number) => Math.min(255, Math.round((255 * number) / top)));
  for (let cell = 0; cell < map.length; cell += 1) {
    const [red, green, blue] = ramp[levels[map[cell]]];
    image.data[4 * cell] = red;
    image.data[4 * cell + 1] = green;
    image.data[4 * cell + 2] = blue;
    image.data[4 * cell + 3] = 255;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

// Pixels of a cell, so that as many maps as possible stand side by side and can still be read.
function cellOf(columns, beside, room, number) {
  const fits = (maps) => Math.floor((room / maps - beside - 28) / columns);
  const least = columns > 30 ? 5 : 13;
  for (let maps = number; maps > 1; maps -= 1) {
    if (fits(maps) >= least) return Math.min(22, fits(maps));
  }
  return Math.max(3, Math.min(22, fits(1)));
}

// Where the parts of a map lie, in pixels.
function measureMap(side, room, number) {
  const left = widthOf(side.rows);
  const above = 0.82 * widthOf(side.columns) + 8;
  const cell = cellOf(side.columns.length, left + 30, room, number);
  const width = cell * side.columns.length;
  const height = cell * side.rows.length;
  return { left, above, cell, width, height, every: Math.ceil(12 / cell), middle: cell / 2 + 4 };
}

// The names of rows and columns; where cells are small, of some of them.
function nameCells(side, { left, above, cell, every, middle }) {
  const rows = side.rows.map((name, row) => {
    if (row % every) return null;
    const y = above + row * cell + middle;
    return make("text", { x: left - 5, y, "text-anchor": "end" }, shorten(name));
  });
  const columns = side.columns.map((name, column) => {
    if (column % every) return null;
    const x = left + column * cell + middle;
    const transform = `rotate(-55 ${x} ${above - 5})`;
    return make("text", { x, y: above - 5, transform }, shorten(name));
  });
  return { rows, columns };
}

// A map with names, framed cells, and a frame around one row.
//
// Gives its figure, and what moves the frame to a row. `point` is called with the row and the
// column that are pointed at, and with whether they are chosen.
function drawMap(map, side, { title, note, ramp, top, room, number, point, links = side.links, control = null }) {
  const at = measureMap(side, room, number);
  const { left, above, cell, width, height } = at;
  const style = `left: ${left}px; top: ${above}px; width: ${width}px; height: ${height}px`;
  const label = `${title}: ${side.rows.length} rows, ${side.columns.length} columns`;
  const canvas = make("canvas", { role: "img", "aria-label": label, style });
  paint(canvas, map, side, top, ramp);
  const names = nameCells(side, at);
  const gold = links.map(([row, column]) => ({ x: left + column * cell, y: above + row * cell }));
  const frames = gold.map((place) => make("rect", { class: "gold", ...place, width: cell, height: cell }));
  const frame = make("rect", { class: "row", x: left - 1, width: width + 3, height: cell });
  const size = { width: left + width + 30, height: above + height + 4 };
  const svg = make("svg", size, names.rows, names.columns, frames, frame);
  const box = make("div", { class: "map", style: `width: ${size.width}px` }, canvas, svg);
  const told = (chosen) => (event) => {
    const inside = canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - inside.top) / cell);
    const column = Math.floor((event.clientX - inside.left) / cell);
    const onColumn = column >= 0 && column < side.columns.length;
    if (row >= 0 && row < side.rows.length) point(row, onColumn ? column : null, chosen);
  };
  box.addEventListener("pointermove", told(false));
  box.addEventListener("click", told(true));
  const mark = (row) => {
    frame.setAttribute("y", above + row * cell);
    names.rows.forEach((name, place) => name?.classList.toggle("on", place === row));
  };
  const caption = make("figcaption", {}, title, " ", make("small", {}, note));
  return { figure: make("figure", {}, caption, make("div", { class: "wide" }, box), control), mark };
}
