// One row of some maps as bars, below the maps.

const BAR_HEIGHT = 130; // pixels of the highest bar
const BAR_SHARE = 0.78; // share of a column's width

// The layout of a row of bars in pixels.
function layOutRow(columns, top, room) {
  const step = Math.max(5, Math.min(56, (room - 46) / columns.length));
  const y = (value) => 8 + BAR_HEIGHT * (1 - Math.min(1, value / top));
  return { step, wide: step * BAR_SHARE, named: step >= 11, y, x: (column) => 42 + column * step };
}

function drawBars(bars, name, column, { wide, x, y }) {
  return bars.map((bar, index) => {
    const upper = y(bar.values[column]);
    const size = { width: Math.max(1, wide / bars.length - 0.5), height: 8 + BAR_HEIGHT - upper };
    const rectangle = { x: x(column) + (index * wide) / bars.length, y: upper, ...size };
    const words = `${name}: ${bar.name} ${write(bar.values[column])}`;
    return make("rect", { ...rectangle, fill: bar.colour, opacity: 0.8 }, make("title", {}, words));
  });
}

function drawColumn(name, column, { bars, band, marks, gold }, layout) {
  const { step, wide, named, x, y } = layout;
  const left = x(column);
  const middle = left + wide / 2;
  const elements = drawBars(bars, name, column, layout);
  if (gold.has(column))
    elements.push(make("rect", { class: "gold", x: left - step * 0.08, y: 6, width: step * 0.94, height: BAR_HEIGHT + 3 }));
  if (band)
    elements.push(lineOf(middle, y(band.low[column]), middle, y(band.high[column]), "var(--band)", Math.min(4, step / 4)));
  if (marks) elements.push(lineOf(left, y(marks[column]), left + wide, y(marks[column]), "var(--prior)", 2.5));
  const transform = `rotate(-45 ${middle} ${BAR_HEIGHT + 20})`;
  if (named) elements.push(textOf(middle, BAR_HEIGHT + 20, shorten(name), { class: "name", transform }));
  return elements;
}

// Bars for each map, a band around the first, marks for another map, and frames.
function drawRow(columns, content, { top, room, label }) {
  const layout = layOutRow(columns, top, room);
  const width = 42 + layout.step * columns.length;
  const grid = ticksOf(0, top, false).map((value) => [
    lineOf(38, layout.y(value), width, layout.y(value), "var(--line)"),
    textOf(33, layout.y(value) + 4, nameTick(value)),
  ]);
  const drawn = columns.map((name, column) => drawColumn(name, column, content, layout));
  const below = layout.named ? 0.82 * widthOf(columns) + 12 : 6;
  const size = { width: width + 10, height: BAR_HEIGHT + 14 + below, style: "max-width: none" };
  const svg = make("svg", { ...size, role: "img", "aria-label": label }, grid, drawn);
  return make("div", { class: "wide" }, svg);
}

// Maps of one sentence side by side, and below them the row under the pointer or the selected one.
function drawMapsAndRow(box, maps, side, row, { rowOf, captionOf, keys }) {
  const below = make("div");
  const caption = make("p", { class: "read", "aria-live": "polite" });
  const room = roomOf(box);
  const clamp = (index) => Math.max(0, Math.min(side.rows.length - 1, index));
  let shownRow = null;
  const showRow = (index) => {
    const gold = new Set(side.links.filter(([row]) => row === index).map(([, column]) => column));
    const { top, label, ...content } = rowOf(index);
    for (const { mark } of drawn) mark(index);
    below.replaceChildren(drawRow(side.columns, { ...content, gold }, { top, label, room }));
    shownRow = index;
  };
  const point = (row, column, clicked) => {
    const index = clamp(row);
    if (index !== shownRow) showRow(index);
    caption.textContent = captionOf(index, column);
    if (clicked) remember({ row: index });
  };
  const onkeydown = (event) => {
    const move = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!move || event.target.matches("input")) return;
    event.preventDefault();
    point((state.row ?? row) + move, null, true);
  };
  const fit = { room, number: maps.length, point };
  const drawn = maps.map((options) => drawMap(options.map, side, { ...options, ...fit }));
  const figures = drawn.map(({ figure }) => figure);
  const label = "Maps: the arrow keys select the row";
  const gold = side.links.length ? make("span", {}, make("i", { class: "box" }), "gold alignment") : null;
  box.append(
    make(
      "div",
      { tabindex: 0, role: "group", "aria-label": label, onkeydown },
      make("div", { class: "maps" }, figures),
    ),
  );
  box.append(caption, below, make("div", { class: "keys" }, keys, gold));
  point(row, null, false);
  box.dataset.maps = Number(box.dataset.maps ?? 0) + drawn.length;
  const [rows, columns] = side.stride;
  if (rows * columns > 1) {
    const cell = `a cell is ${rows} rows by ${columns} columns`;
    box.append(note(`This sentence is long: ${cell}; weights of columns are summed, those of rows averaged.`));
  }
}

// The row with the largest weight, or with the largest difference to another map.
function selectRow(map, side, other) {
  const largest = side.rows.map((_, row) => {
    const baseline = other ? readRow(other, side, row) : [];
    return Math.max(...readRow(map, side, row).map((value, column) => Math.abs(value - (baseline[column] ?? 0))));
  });
  return largest.indexOf(Math.max(...largest));
}

// The smallest and the largest sum of a row of some maps: 1, except for quantisation errors.
function sumRows(maps, side) {
  const sums = maps.flatMap((map) =>
    side.rows.map((_, row) => readRow(map, side, row).reduce((sum, value) => sum + value, 0)),
  );
  return { low: Math.min(...sums).toFixed(3), high: Math.max(...sums).toFixed(3) };
}

function chooseSentence(run) {
  const names = run.sentences.map(({ source, reference }, index) => `${index + 1}: ${shorten(source ?? reference, 48)}`);
  return makeSelect("Sentence", names, state.sentence, (index) => go({ sentence: index, row: null }));
}
