// Maps on a canvas: the weights of a head, or a distribution over positions.

const CHARACTER = 7.8; // width in pixels of a bold character, as in the selected row
const MAX_LABEL = 14; // characters of a label
const shorten = (text, limit = MAX_LABEL) => (text.length > limit ? `${text.slice(0, limit - 1)}…` : text);
const widthOf = (names) => 12 + CHARACTER * Math.max(1, ...names.map((name) => shorten(name).length));

// Paints one pixel per cell; the browser scales the canvas.
function paint(canvas, map, side, limit, ramp) {
  canvas.width = side.columns.length;
  canvas.height = side.rows.length;
  const image = new ImageData(canvas.width, canvas.height);
  const levels = NUMBER.map((number) => Math.min(255, Math.round((255 * number) / limit)));
  for (let cell = 0; cell < map.length; cell += 1) {
    const [red, green, blue] = ramp[levels[map[cell]]];
    image.data[4 * cell] = red;
    image.data[4 * cell + 1] = green;
    image.data[4 * cell + 2] = blue;
    image.data[4 * cell + 3] = 255;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

// The size of a cell in pixels, so that as many maps as possible fit side by side and stay legible.
function cellOf(columns, beside, room, number) {
  const fits = (maps) => Math.floor((room / maps - beside - 28) / columns);
  const least = columns > 30 ? 5 : 13;
  for (let maps = number; maps > 1; maps -= 1) {
    if (fits(maps) >= least) return Math.min(22, fits(maps));
  }
  return Math.max(3, Math.min(22, fits(1)));
}

// The layout of a map in pixels.
function measureMap(side, room, number) {
  const left = widthOf(side.rows);
  const above = 0.82 * widthOf(side.columns) + 8;
  const cell = cellOf(side.columns.length, left + 30, room, number);
  const width = cell * side.columns.length;
  const height = cell * side.rows.length;
  return { left, above, cell, width, height, interval: Math.ceil(12 / cell), middle: cell / 2 + 4 };
}

// The labels of rows and columns; with small cells, of some of them.
function nameCells(side, { left, above, cell, interval, middle }) {
  const rows = side.rows.map((name, row) => {
    if (row % interval) return null;
    const y = above + row * cell + middle;
    return make("text", { x: left - 5, y, "text-anchor": "end" }, shorten(name));
  });
  const columns = side.columns.map((name, column) => {
    if (column % interval) return null;
    const x = left + column * cell + middle;
    const transform = `rotate(-55 ${x} ${above - 5})`;
    return make("text", { x, y: above - 5, transform }, shorten(name));
  });
  return { rows, columns };
}

// A map with labels, framed cells, and a frame around one row.
//
// Returns its figure, and a function that moves the frame to a row. `point` is called with the row
// and the column under the pointer, and with whether it was clicked.
function drawMap(map, side, { title, note, ramp, limit, room, number, point, links = side.links, control = null }) {
  const layout = measureMap(side, room, number);
  const { left, above, cell, width, height } = layout;
  const style = `left: ${left}px; top: ${above}px; width: ${width}px; height: ${height}px`;
  const label = `${title}: ${side.rows.length} rows, ${side.columns.length} columns`;
  const canvas = make("canvas", { role: "img", "aria-label": label, style });
  paint(canvas, map, side, limit, ramp);
  const names = nameCells(side, layout);
  const corners = links.map(([row, column]) => ({ x: left + column * cell, y: above + row * cell }));
  const frames = corners.map((corner) => make("rect", { class: "gold", ...corner, width: cell, height: cell }));
  const frame = make("rect", { class: "row", x: left - 1, width: width + 3, height: cell });
  const size = { width: left + width + 30, height: above + height + 4 };
  const svg = make("svg", size, names.rows, names.columns, frames, frame);
  const box = make("div", { class: "map", style: `width: ${size.width}px` }, canvas, svg);
  const onpointer = (clicked) => (event) => {
    const inside = canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - inside.top) / cell);
    const column = Math.floor((event.clientX - inside.left) / cell);
    const onColumn = column >= 0 && column < side.columns.length;
    if (row >= 0 && row < side.rows.length) point(row, onColumn ? column : null, clicked);
  };
  box.addEventListener("pointermove", onpointer(false));
  box.addEventListener("click", onpointer(true));
  const mark = (row) => {
    frame.setAttribute("y", above + row * cell);
    names.rows.forEach((name, index) => name?.classList.toggle("on", index === row));
  };
  const caption = make("figcaption", {}, title, " ", make("small", {}, note));
  return { figure: make("figure", {}, caption, make("div", { class: "wide" }, box), control), mark };
}
