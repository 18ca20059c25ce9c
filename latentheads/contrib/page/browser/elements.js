// Building blocks of views: elements, tables, colours.

const OF_SVG = new Set(["svg", "path", "line", "rect", "circle", "text", "title"]);

// Makes an element with attributes and children; attributes "on..." are event listeners.
function make(tag, attributes = {}, ...children) {
  const element = OF_SVG.has(tag)
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat(2).filter((child) => child !== null && child !== undefined));
  return element;
}

function makeTable(headings, rows) {
  const head = headings.map((words) => make("th", { scope: "col" }, words));
  const lines = rows.map((row) =>
    make(
      "tr",
      {},
      row.map((cell) => make("td", {}, cell)),
    ),
  );
  const table = make("table", {}, make("thead", {}, make("tr", {}, head)), make("tbody", {}, lines));
  return make("div", { class: "wide" }, table);
}

// Adds a table of runs; where it is wider than the page, each run is a column if that is narrower.
function addTableOfRuns(box, headings, rows) {
  const table = makeTable(headings, rows);
  box.append(table);
  if (table.scrollWidth > table.clientWidth && rows.length < headings.length - 1) {
    const scores = headings.slice(1).map((heading, index) => [heading, ...rows.map((row) => row[index + 1])]);
    const turned = makeTable([headings[0], ...rows.map(([name]) => name)], scores);
    table.replaceWith(turned);
    turned.classList.add("turned");
  }
}

function makeSelect(label, names, selected, choose) {
  const attributes = (index) => ({ value: index, selected: index === selected, dir: "auto" });
  const options = names.map((name, index) => make("option", attributes(index), name));
  const onchange = (event) => choose(Number(event.target.value));
  return make("label", {}, label, make("select", { onchange }, options));
}

// Makes a grid of cells with a name before each row and optional names above the columns.
function makeGrid(width, above, rows) {
  const columns = `grid-template-columns: max-content repeat(${width}, minmax(min-content, 54px))`;
  const name = (words) => make("span", { class: "at" }, words);
  const first = above.length ? [name(""), above.map(name)] : [];
  const lines = rows.map(([words, cells]) => [make("span", { class: "at first" }, words), ...cells]);
  return make("div", { class: "wide" }, make("div", { class: "grid", style: columns }, first, lines.flat()));
}

// Makes a coloured cell; that of an inactive head has no colour.
function makeCell(value, ramp, limit, words, { digits = 2, more = "", span = 1, onclick } = {}) {
  const inactive = value === null;
  const title = `${words}: ${inactive ? "inactive" : write(value, 4)}`;
  const attributes = {
    class: `cell ${inactive ? "silent" : ""} ${more}`,
    style: `${inactive ? "" : shadeOf(ramp, value / limit)}; grid-column: span ${span}`,
    title,
    "aria-label": title,
  };
  const text = digits === null ? "" : inactive ? "–" : value.toFixed(digits);
  return onclick ? make("button", { ...attributes, onclick }, text) : make("span", attributes, text);
}

const note = (words) => make("p", { class: "soft" }, words);
const lineOf = (x1, y1, x2, y2, colour, width = 1, dash = undefined) =>
  make("line", { x1, y1, x2, y2, stroke: colour, "stroke-width": width, "stroke-dasharray": dash });
const textOf = (x, y, words, attributes = {}) => make("text", { x, y, "text-anchor": "end", ...attributes }, words);
const swatch = (colour, words) => make("span", {}, make("i", { style: `background: ${colour}` }), words);
const stroke = (colour, words, dash) =>
  make("span", {}, make("svg", { width: 34, height: 6 }, lineOf(0, 3, 34, 3, colour, 3, dash)), words);

// 256 colours between the stops in the style sheet, as [red, green, blue].
function rampOf(name) {
  const property = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`);
  const stops = property.split(",").map((stop) => stop.match(/[0-9a-f]{2}/gi).map((hex) => parseInt(hex, 16)));
  return Array.from({ length: 256 }, (_, level) => {
    const position = (level / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(position), stops.length - 2);
    return stops[low].map((from, channel) => Math.round(from + (stops[low + 1][channel] - from) * (position - low)));
  });
}

// A colour of a ramp as background, with black or white text for contrast.
function shadeOf(ramp, share) {
  const [red, green, blue] = ramp[Math.round(255 * Math.min(1, Math.max(0, share)))];
  const light = 0.299 * red + 0.587 * green + 0.114 * blue > 140;
  return `background: rgb(${red} ${green} ${blue}); color: ${light ? "#111" : "#fff"}`;
}

function makeScale(ramp, high, words) {
  const stops = [0, 64, 128, 191, 255].map((level) => `rgb(${ramp[level].join(" ")})`);
  const bar = make("i", { style: `background: linear-gradient(to right, ${stops.join(", ")})` });
  return make("div", { class: "scale" }, "0", bar, make("span", {}, high), make("span", {}, words));
}
