// What views are built of: elements, tables, colours.

const OF_SVG = new Set(["svg", "path", "line", "rect", "circle", "text", "title"]);

// An element with attributes and children; "on..." is what to do at an event.
function make(tag, given = {}, ...children) {
  const element = OF_SVG.has(tag)
    ? document.createElementNS("http://www.w3.org/2000/svg", tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
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

function makeSelect(label, names, chosen, choose) {
  const given = (place) => ({ value: place, selected: place === chosen, dir: "auto" });
  const options = names.map((name, place) => make("option", given(place), name));
  const onchange = (event) => choose(Number(event.target.value));
  return make("label", {}, label, make("select", { onchange }, options));
}

// Cells in rows, a name before each row, and names above if there are any.
function makeGrid(width, above, rows) {
  const columns = `grid-template-columns: max-content repeat(${width}, minmax(min-content, 54px))`;
  const name = (words) => make("span", { class: "at" }, words);
  const first = above.length ? [name(""), above.map(name)] : [];
  const lines = rows.map(([words, cells]) => [make("span", { class: "at first" }, words), ...cells]);
  return make("div", { class: "wide" }, make("div", { class: "grid", style: columns }, first, lines.flat()));
}

// A cell of a colour; a silent head has none.
function makeCell(value, ramp, top, words, { digits = 2, more = "", span = 1, onclick } = {}) {
  const silent = value === null;
  const title = `${words}: ${silent ? "silent" : write(value, 4)}`;
  const given = {
    class: `cell ${silent ? "silent" : ""} ${more}`,
    style: `${silent ? "" : shadeOf(ramp, value / top)}; grid-column: span ${span}`,
    title,
    "aria-label": title,
  };
  const shown = digits === null ? "" : silent ? "–" : value.toFixed(digits);
  return onclick ? make("button", { ...given, onclick }, shown) : make("span", given, shown);
}

const note = (words) => make("p", { class: "soft" }, words);
const lineOf = (x1, y1, x2, y2, colour, width = 1, dash = undefined) =>
  make("line", { x1, y1, x2, y2, stroke: colour, "stroke-width": width, "stroke-dasharray": dash });
const textOf = (x, y, words, given = {}) => make("text", { x, y, "text-anchor": "end", ...given }, words);
const swatch = (colour, words) => make("span", {}, make("i", { style: `background: ${colour}` }), words);
const stroke = (colour, words, dash) =>
  make("span", {}, make("svg", { width: 34, height: 6 }, lineOf(0, 3, 34, 3, colour, 3, dash)), words);

// 256 colours between the stops that the style names, as [red, green, blue].
function rampOf(name) {
  const said = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`);
  const stops = said.split(",").map((stop) => stop.match(/[0-9a-f]{2}/gi).map((hex) => parseInt(hex, 16)));
  return Array.from({ length: 256 }, (_, level) => {
    const place = (level / 255) * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2);
    return stops[low].map((from, which) => Math.round(from + (stops[low + 1][which] - from) * (place - low)));
  });
}

// A colour of a ramp, under black or white, whichever is read better on it.
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
