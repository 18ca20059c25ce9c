// Maps on a canvas, and one of their rows as bars.

const LETTER = 6.8; // pixels of a letter
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

// One row of some maps: bars, a band around the first of them, and marks of another.
function drawRow(columns, { bars, band, marks, gold, top, room, label }) {
  const step = Math.max(5, Math.min(56, (room - 46) / columns.length));
  const [height, wide] = [130, step * 0.78];
  const named = step >= 11;
  const y = (value) => 8 + height * (1 - Math.min(1, value / top));
  const drawn = [0, 0.5, 1].map((share) => [
    make("line", {
      x1: 38,
      x2: 42 + step * columns.length,
      y1: y(share * top),
      y2: y(share * top),
      stroke: "var(--line)",
    }),
    make("text", { x: 33, y: y(share * top) + 4, "text-anchor": "end" }, write(share * top, 2)),
  ]);
  columns.forEach((name, column) => {
    const x = 42 + column * step;
    const middle = x + wide / 2;
    if (gold.has(column))
      drawn.push(make("rect", { class: "gold", x: x - step * 0.08, y: 6, width: step * 0.94, height: height + 3 }));
    bars.forEach((bar, place) => {
      const upper = y(bar.values[column]);
      const size = { width: Math.max(1, wide / bars.length - 0.5), height: 8 + height - upper };
      const words = make("title", {}, `${name}: ${bar.name} ${write(bar.values[column])}`);
      drawn.push(
        make("rect", { x: x + (place * wide) / bars.length, y: upper, ...size, fill: bar.colour, opacity: 0.8 }, words),
      );
    });
    const [low, high] = band ? [y(band.low[column]), y(band.high[column])] : [];
    const thick = Math.min(4, step / 4);
    if (band)
      drawn.push(
        make("line", { x1: middle, x2: middle, y1: low, y2: high, stroke: "var(--band)", "stroke-width": thick }),
      );
    const mark = marks && y(marks[column]);
    if (marks)
      drawn.push(
        make("line", { x1: x, x2: x + wide, y1: mark, y2: mark, stroke: "var(--prior)", "stroke-width": 2.5 }),
      );
    const turn = `rotate(-45 ${middle} ${height + 20})`;
    if (named)
      drawn.push(
        make(
          "text",
          { class: "name", x: middle, y: height + 20, "text-anchor": "end", transform: turn },
          shorten(name),
        ),
      );
  });
  const size = { width: 52 + step * columns.length, height: height + 14 + (named ? 0.82 * widthOf(columns) + 12 : 6) };
  return make(
    "div",
    { class: "wide" },
    make("svg", { ...size, role: "img", "aria-label": label, style: "max-width: none" }, drawn),
  );
}

// Maps of one sentence side by side, and below them the row that is pointed at or chosen.
function drawMapsAndRow(box, shown, side, row, { rowOf, readOf, keys }) {
  const below = make("div");
  const read = make("p", { class: "read", "aria-live": "polite" });
  const within = (at) => Math.max(0, Math.min(side.rows.length - 1, at));
  const point = (at, column, chosen) => {
    const place = within(at);
    const gold = new Set(side.links.filter(([each]) => each === place).map(([, each]) => each));
    for (const { mark } of drawn) mark(place);
    below.replaceChildren(drawRow(side.columns, { ...rowOf(place), gold, room: roomOf(box) }));
    read.textContent = readOf(place, column);
    if (chosen) remember({ row: place });
  };
  const onkeydown = (event) => {
    const move = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!move || event.target.matches("input")) return;
    event.preventDefault();
    point((state.row ?? row) + move, null, true);
  };
  const fit = { room: roomOf(box), number: shown.length, point };
  const drawn = shown.map((each) => drawMap(each.map, side, { ...each, ...fit }));
  const maps = make(
    "div",
    { class: "maps" },
    drawn.map((each) => each.figure),
  );
  const label = "Maps: the arrow keys choose the row";
  const truth = side.links.length ? make("span", {}, make("i", { class: "box" }), "true alignment") : null;
  box.append(make("div", { tabindex: 0, role: "group", "aria-label": label, onkeydown }, maps));
  box.append(read, below, make("div", { class: "keys" }, keys, truth));
  point(row, null, false);
  box.dataset.maps = Number(box.dataset.maps ?? 0) + drawn.length;
  const [rows, columns] = side.stride;
  if (rows * columns > 1) {
    const cell = `a cell is ${rows} rows by ${columns} columns`;
    box.append(
      make(
        "p",
        { class: "soft" },
        `This sentence is long: ${cell}; weights of columns are summed, those of rows averaged.`,
      ),
    );
  }
}

// The row whose numbers are largest, or furthest from those of another map.
function findRow(map, side, other) {
  const most = side.rows.map((_, row) => {
    const least = other ? readRow(other, side, row) : [];
    return Math.max(...readRow(map, side, row).map((value, column) => Math.abs(value - (least[column] ?? 0))));
  });
  return most.indexOf(Math.max(...most));
}

// The least and the largest sum of a row of some maps: both are 1, but for their coding.
function sumRows(maps, side) {
  const sums = maps.flatMap((map) =>
    side.rows.map((_, row) => readRow(map, side, row).reduce((sum, value) => sum + value, 0)),
  );
  return { low: Math.min(...sums).toFixed(3), high: Math.max(...sums).toFixed(3) };
}

function chooseSentence(run) {
  const names = run.sentences.map((each, place) => `${place + 1}: ${shorten(each.source ?? each.reference, 48)}`);
  return makeSelect("Sentence", names, state.sentence, (place) => go({ sentence: place, row: null }));
}
