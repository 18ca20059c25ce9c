// One row of some maps as bars, and the maps above it.

const BARS = 130; // pixels of the highest bar
const SHARE = 0.78; // of a column's width that its bars take

// A place along the row, where the column of a name begins.
function layRow(columns, top, room) {
  const step = Math.max(5, Math.min(56, (room - 46) / columns.length));
  const y = (value) => 8 + BARS * (1 - Math.min(1, value / top));
  return { step, wide: step * SHARE, named: step >= 11, y, x: (column) => 42 + column * step };
}

function drawBars(bars, name, column, { wide, x, y }) {
  return bars.map((bar, place) => {
    const upper = y(bar.values[column]);
    const size = { width: Math.max(1, wide / bars.length - 0.5), height: 8 + BARS - upper };
    const at = { x: x(column) + (place * wide) / bars.length, y: upper, ...size };
    const words = `${name}: ${bar.name} ${write(bar.values[column])}`;
    return make("rect", { ...at, fill: bar.colour, opacity: 0.8 }, make("title", {}, words));
  });
}

function drawColumn(name, column, { bars, band, marks, gold }, at) {
  const { step, wide, named, x, y } = at;
  const left = x(column);
  const middle = left + wide / 2;
  const drawn = drawBars(bars, name, column, at);
  if (gold.has(column))
    drawn.push(make("rect", { class: "gold", x: left - step * 0.08, y: 6, width: step * 0.94, height: BARS + 3 }));
  if (band)
    drawn.push(lineOf(middle, y(band.low[column]), middle, y(band.high[column]), "var(--band)", Math.min(4, step / 4)));
  if (marks) drawn.push(lineOf(left, y(marks[column]), left + wide, y(marks[column]), "var(--prior)", 2.5));
  const transform = `rotate(-45 ${middle} ${BARS + 20})`;
  if (named) drawn.push(textOf(middle, BARS + 20, shorten(name), { class: "name", transform }));
  return drawn;
}

// Bars for each map, a band around the first of them, marks of another, and frames.
function drawRow(columns, shown, { top, room, label }) {
  const at = layRow(columns, top, room);
  const width = 42 + at.step * columns.length;
  const grid = [0, top / 2, top].map((value) => [
    lineOf(38, at.y(value), width, at.y(value), "var(--line)"),
    textOf(33, at.y(value) + 4, write(value, 2)),
  ]);
  const drawn = columns.map((name, column) => drawColumn(name, column, shown, at));
  const below = at.named ? 0.82 * widthOf(columns) + 12 : 6;
  const size = { width: width + 10, height: BARS + 14 + below, style: "max-width: none" };
  const svg = make("svg", { ...size, role: "img", "aria-label": label }, grid, drawn);
  return make("div", { class: "wide" }, svg);
}

// Maps of one sentence side by side, and below them the row that is pointed at or chosen.
function drawMapsAndRow(box, shown, side, row, { rowOf, readOf, keys }) {
  const below = make("div");
  const read = make("p", { class: "read", "aria-live": "polite" });
  const room = roomOf(box);
  const within = (at) => Math.max(0, Math.min(side.rows.length - 1, at));
  let shownRow = null;
  const showRow = (place) => {
    const gold = new Set(side.links.filter(([each]) => each === place).map(([, each]) => each));
    const { top, label, ...told } = rowOf(place);
    for (const { mark } of drawn) mark(place);
    below.replaceChildren(drawRow(side.columns, { ...told, gold }, { top, label, room }));
    shownRow = place;
  };
  const point = (at, column, chosen) => {
    const place = within(at);
    if (place !== shownRow) showRow(place);
    read.textContent = readOf(place, column);
    if (chosen) remember({ row: place });
  };
  const onkeydown = (event) => {
    const move = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!move || event.target.matches("input")) return;
    event.preventDefault();
    point((state.row ?? row) + move, null, true);
  };
  const fit = { room, number: shown.length, point };
  const drawn = shown.map((each) => drawMap(each.map, side, { ...each, ...fit }));
  const figures = drawn.map((each) => each.figure);
  const label = "Maps: the arrow keys choose the row";
  const truth = side.links.length ? make("span", {}, make("i", { class: "box" }), "true alignment") : null;
  box.append(
    make(
      "div",
      { tabindex: 0, role: "group", "aria-label": label, onkeydown },
      make("div", { class: "maps" }, figures),
    ),
  );
  box.append(read, below, make("div", { class: "keys" }, keys, truth));
  point(row, null, false);
  box.dataset.maps = Number(box.dataset.maps ?? 0) + drawn.length;
  const [rows, columns] = side.stride;
  if (rows * columns > 1) {
    const cell = `a cell is ${rows} rows by ${columns} columns`;
    box.append(note(`This sentence is long: ${cell}; weights of columns are summed, those of rows averaged.`));
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
