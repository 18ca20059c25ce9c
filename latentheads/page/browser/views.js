// The views: what each is called, what it says, which runs have it, and how it is drawn.

const CHAINS = {
  "encoder-self": "Encoder, self-attention", "decoder-self": "Decoder, self-attention",
  "decoder-cross": "Decoder, reading the source", "decoder-alignment": "Alignments", selection: "Which heads speak",
};
const chainTitle = (chain) => CHAINS[chain] ?? chain;
const COLOURS = { "encoder-self": "var(--run-0)", "decoder-self": "var(--run-1)", "decoder-cross": "var(--run-2)", "decoder-alignment": "var(--run-3)", selection: "var(--run-4)" };

// ---- the bounds of all runs -------------------------------------------------------------------

const FIGURES = {
  elbo: ["ELBO", "true bound", "bound", "A lower bound of log p(y | x): a mean over draws, every KL with weight 1."],
  iwae: ["IWAE", "true bound", "bound", "The tighter bound of several draws of each sentence."],
  exact: ["log p(y | x)", "exact", "exact", "Summed over all alignments, without a draw."],
  truth: ["corpus", "exact", "exact", "The log p(y | x) that the corpus was drawn from: no model is above it, but for chance."],
  kl: ["KL", "in the bound", "bound", "What the posteriors pay to differ from their priors."],
  gap: ["gap", "exact", "exact", "What the bound lacks of log p(y | x): the guide's distance to the exact posterior."],
  plug_in: ["plug-in", "no bound", "none", "The network with every head at its prior's location: another model, whose figure bounds nothing."],
  pareto_k: ["k-hat > 0.7", "share", "none", "Sentences whose weights have a tail too heavy to trust IWAE."],
  bleu: ["BLEU", "score", "score", "Of the translations."], chrf: ["chrF", "score", "score", "Of the translations."],
  rouge1: ["ROUGE-1", "score", "score", "Of the summaries."], rouge2: ["ROUGE-2", "score", "score", "Of the summaries."], rouge_l: ["ROUGE-L", "score", "score", "Of the summaries."],
};
const SHORT = ["bleu", "chrf", "rouge1", "rouge2", "rouge_l"];

// Where the exact value is known, IWAE adds nothing, and the plug-in network is the exact law.
function figureOf(run, name) {
  const figures = run.figures.test ?? {};
  if (["iwae", "plug_in", "pareto_k"].includes(name) && (figures.exact ?? null) !== null) return null;
  return figures[name] ?? null;
}

function drawBounds(run, box) {
  const shown = Object.keys(FIGURES).filter((name) => DATA.runs.some((each) => figureOf(each, name) !== null));
  const heads = shown.map((name) => make("th", { scope: "col", title: FIGURES[name][3] }, FIGURES[name][0], make("br"), make("span", { class: `word ${FIGURES[name][2]}` }, FIGURES[name][1])));
  const rows = DATA.runs.map((each, place) => make("tr", { class: each === run ? "chosen" : undefined },
    make("td", {}, make("button", { onclick: () => go({ run: place }) }, each.name), make("div", { class: "soft plain" }, each.recipe)),
    shown.map((name) => make("td", {}, write(figureOf(each, name), SHORT.includes(name) ? 2 : 4)))));
  if (shown.length) box.append(make("div", { class: "wide" }, make("table", {}, make("thead", {}, make("tr", {}, make("th", {}, "run"), heads)), make("tbody", {}, rows))));
  box.append(make("ul", { class: "soft" }, shown.map((name) => make("li", {}, make("b", {}, FIGURES[name][0]), `: ${FIGURES[name][3]}`))));
  drawPerplexity(box);
  drawOptions(run, box);
  box.dataset.rows = rows.length;
}

function drawPerplexity(box) {
  const found = DATA.runs.flatMap((run) => run.perplexity.filter((each) => each.part === "test").map((each) => [run, each]));
  if (!found.length) return;
  const names = ["exact", "elbo", "iwae", "plug_in"].filter((name) => found.some(([, each]) => (each.word[name] ?? null) !== null));
  const head = names.map((name) => make("th", {}, FIGURES[name][0], make("br"), make("span", { class: `word ${FIGURES[name][2]}` }, FIGURES[name][1])));
  const rows = found.map(([run, each]) => make("tr", {}, make("td", {}, `${run.name}, ${each.mode}`), names.map((name) => make("td", {}, write(each.word[name], 2)))));
  box.append(make("h3", {}, "Perplexity by word: lower is better"), make("div", { class: "wide" }, make("table", {}, make("thead", {}, make("tr", {}, make("th", {}, "text"), head)), make("tbody", {}, rows))));
}

function drawOptions(run, box) {
  const list = (names) => make("dl", { class: "options" }, names.map((name) => [make("dt", {}, name), make("dd", {}, JSON.stringify(run.options[name]).replaceAll('"', ""))]));
  const others = Object.keys(run.options).filter((name) => !run.changed.includes(name));
  box.append(make("h3", {}, `Options of ${run.name} that are not the default`), list(run.changed));
  box.append(make("details", {}, make("summary", {}, `All other options (${others.length})`), list(others)));
}

// ---- training ---------------------------------------------------------------------------------

const LINES = {
  elbo: ["bound (ELBO)", "var(--bound)"], log_likelihood: ["expected log-likelihood", "var(--bound)", "6 4"],
  exact: ["exact log p", "var(--exact)"], plug_in: ["plug-in network (no bound)", "var(--none)", "2 4"],
  objective: ["training objective (no bound)", "var(--none)"],
};
const negate = (values) => values.map((value) => (value === null ? NaN : -value));

function drawTraining(run, box) {
  const { steps, bound, kl = {}, speaking, truth } = run.curves, room = roomOf(box), charts = make("div", { class: "lines" });
  const lines = Object.entries(bound).map(([name, values]) => ({ name: LINES[name][0], colour: LINES[name][1], dash: LINES[name][2], thin: name === "objective", values: negate(values) }));
  if (truth) lines.push({ name: "the corpus itself", colour: "var(--ink)", dash: "1 3", thin: true, values: steps.map(() => -truth) });
  charts.append(drawLines("Bound on validation", "minus nats a token: lower is better", steps, lines, { decades: true, room }));
  const others = DATA.runs.map((each, place) => ({ each, place })).filter(({ each }) => each.curves.steps);
  if (others.length > 1) {
    const all = others.map(({ each, place }) => ({ name: each.name, colour: `var(--run-${place % 6})`, dash: place > 5 ? "6 4" : undefined, steps: each.curves.steps, values: negate(each.curves.bound.elbo) }));
    charts.append(drawLines("True bound of every run", "minus nats a token: lower is better", others.flatMap(({ each }) => each.curves.steps).sort((a, b) => a - b), all, { decades: true, room }));
  }
  const byChain = (found) => Object.entries(found).map(([chain, values]) => ({ name: chainTitle(chain), colour: COLOURS[chain], values }));
  if (Object.values(kl).flat().some((value) => value > 0)) charts.append(drawLines("KL of each chain", "nats a token", steps, byChain(kl), { room, zero: true }));
  if (speaking) charts.append(drawLines("Heads expected to speak", "of each chain", steps, byChain(speaking), { room, zero: true }));
  box.append(charts);
}

// ---- one figure a head ------------------------------------------------------------------------

const QUANTITIES = {
  kl: ["KL", "nats a token", "deviation", "What the posterior pays to differ from its prior; one figure for all heads of a block."],
  gap: ["Gap", "nats a token", "deviation", "What a guide's alignments lack of the exact posterior; one figure for all heads of a block."],
  entropy: ["Entropy", "nats", "mean", "How widely a head looks: 0 where it reads one position alone."],
  confidence: ["Confidence", "mean largest weight", "mean", "How much of its weight a head gives to the position it reads most."],
  disagreement: ["Disagreement", "nats a query", "apart", "Jensen-Shannon divergence from the other heads of the block, at most 0.693: how different what it reads is."],
  importance: ["Importance", "length 1 a block", "deviation", "How much the loss would feel it if the head were switched off."],
  speaks: ["Gate", "probability", "apart", "The posterior probability that the gate of the head is open."],
};

function drawHeads(run, box) {
  const { blocks, values } = run.grid, names = Object.keys(QUANTITIES).filter((name) => values[name]);
  const quantity = names.includes(state.quantity) ? state.quantity : names.find((name) => name !== "kl" && name !== "gap") ?? names[0];
  const [title, unit, colours, words] = QUANTITIES[quantity], ramp = rampOf(colours), known = Object.values(values[quantity]).flat().filter((value) => value !== null);
  const top = ["confidence", "speaks"].includes(quantity) ? 1 : Math.max(...known, 1e-9);
  box.append(make("div", { class: "bar choices", role: "group", "aria-label": "Colour" }, names.map((name) => make("button", { "aria-pressed": name === quantity, onclick: () => go({ quantity: name }) }, QUANTITIES[name][0]))));
  box.append(make("p", {}, make("b", {}, title), `, ${unit}. ${words}`), drawScale(ramp, "0", write(top, 2), ""));
  const grids = make("div", { class: "charts" });
  for (const chain of new Set(blocks.map((block) => block.chain))) {
    const own = blocks.filter((block) => block.chain === chain && values[quantity][block.name]).reverse();
    const named = own.some((block) => block.attends) ? chainTitle(chain) : chainTitle(chain).replace("self-attention", "n-grams");
    if (own.length) grids.append(make("div", {}, make("h3", {}, named), drawCells(run, own, values[quantity], quantity, top, ramp)));
  }
  box.append(grids);
  box.dataset.cells = box.querySelectorAll(".cell").length;
}

function drawCells(run, blocks, values, quantity, top, ramp) {
  const wide = Math.max(...blocks.map((block) => block.heads));
  const grid = make("div", { class: "grid", style: `grid-template-columns: max-content repeat(${wide}, minmax(min-content, 54px))` });
  grid.append(make("span", { class: "at" }), ...Array.from({ length: wide }, (_, head) => make("span", { class: "at" }, `head ${head}`)));
  for (const block of blocks) {
    const row = values[block.name], seen = run.sentences[0]?.maps.some((maps) => maps.name === block.name);
    grid.append(make("span", { class: "at", style: "grid-column: 1" }, `layer ${block.layer}`));
    row.forEach((value, head) => {
      const name = `${block.name}, ${row.length > 1 || block.heads === 1 ? `head ${head}` : "all heads"}: ${value === null ? "silent" : write(value, 4)}`;
      const style = (value === null ? "" : shadeOf(ramp, value / top)) + (row.length < block.heads ? `; grid-column: span ${block.heads}` : "");
      const given = { class: value === null ? "cell silent" : "cell", style, title: name, "aria-label": name };
      const text = value === null ? "silent" : value.toFixed(quantity === "kl" || quantity === "gap" ? 4 : 2);
      grid.append(seen ? make("button", { ...given, onclick: () => go({ view: "head", block: block.name, head }) }, text) : make("span", given, text));
    });
  }
  return grid;
}

// ---- the maps of a head -----------------------------------------------------------------------

function chooseSentence(run) {
  const options = run.sentences.map((sentence, place) => make("option", { value: place, selected: place === state.sentence }, `${place + 1}: ${shorten(sentence.source ?? sentence.reference, 48)}`));
  return make("label", {}, "Sentence", make("select", { onchange: (event) => go({ sentence: +event.target.value, row: null }) }, options));
}

// Maps side by side, and below them the row that is pointed at or chosen.
function drawMapsAndRow(box, shown, side, row, { rowOf, readOf, keys }) {
  const maps = make("div", { class: "maps" }), below = make("div", { class: "row-of-maps" }), read = make("p", { class: "read", "aria-live": "polite" });
  let marks = [];
  const show = (at, column, chosen) => {
    const place = Math.max(0, Math.min(side.rows.length - 1, at));
    for (const mark of marks) mark(place);
    below.replaceChildren(drawRow(side.columns, { ...rowOf(place), gold: new Set(side.links.filter(([each]) => each === place).map(([, each]) => each)), room: roomOf(box) }));
    read.textContent = readOf(place, column);
    if (chosen) remember({ row: place });
  };
  const drawn = shown.map((each) => drawMap(each.map, side, { ...each, room: roomOf(box), number: shown.length, onrow: show }));
  marks = drawn.map((each) => each.mark);
  maps.append(...drawn.map((each) => each.figure));
  const step = (event) => {
    const move = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!move) return;
    event.preventDefault();
    const place = Math.max(0, Math.min(side.rows.length - 1, (state.row ?? row) + move));
    show(place, null, true);
  };
  const group = make("div", { tabindex: 0, role: "group", "aria-label": "Maps: arrow keys choose the row", onkeydown: step }, maps);
  box.append(group, read, below, make("div", { class: "keys" }, keys, side.links.length ? make("span", {}, make("i", { class: "box" }), "true alignment") : null));
  show(row, null, false);
  const [rows, columns] = side.stride;
  if (rows * columns > 1) box.append(make("p", { class: "soft" }, `This sentence is long: a cell of the maps is ${rows} rows by ${columns} columns; weights of columns are summed, of rows averaged.`));
  box.dataset.maps = (+box.dataset.maps || 0) + drawn.length;
}

const swatch = (colour, words, line) => make("span", {}, make("i", line ? { class: "line", style: `border-color: ${colour}` } : { style: `background: ${colour}` }), words);
const nameRow = (side, row) => `row “${side.rows[row]}”${side.predicts[row] === undefined ? "" : `, which predicts “${side.predicts[row]}”`}`;
const nameTop = (top, map) => `${write(top, 2)}${largestOf(map) > top ? " and more" : ""}`;
const sumOf = (values) => values.reduce((sum, value) => sum + value, 0);

// The row whose numbers are largest, or furthest from those of another map.
function findRow(map, side, other) {
  const least = (row) => (other ? readRow(other, side, row) : side.columns.map(() => 0));
  const most = side.rows.map((_, row) => Math.max(...readRow(map, side, row).map((value, column) => Math.abs(value - least(row)[column]))));
  return most.indexOf(Math.max(...most));
}

async function drawHead(run, box) {
  const sentence = run.sentences[state.sentence], { maps } = await openSentence(sentence);
  const cross = maps.filter((each) => each.name.endsWith(".cross")), found = maps.find((each) => each.name === state.block) ?? cross.at(-1) ?? maps.at(-1);
  const head = Math.min(state.head, found.heads.length - 1), { side, parts } = found, ramps = { mean: rampOf("mean"), deviation: rampOf("deviation") };
  const blocks = maps.map((each) => make("option", { value: each.name, selected: each === found }, `${chainTitle(chainOf(each.name))}, layer ${each.name.split(".")[1]}`));
  box.append(make("div", { class: "bar" }, chooseSentence(run), make("label", {}, "Block", make("select", { onchange: (event) => go({ block: event.target.value, head: 0, row: null }) }, blocks))));
  box.append(drawThumbs(found, head, ramps.mean));
  if (found.silent[head]) {
    box.append(make("p", {}, `Head ${head} is silent in this sentence: it says nothing.`));
    return;
  }
  const own = Object.fromEntries(Object.entries(parts).map(([name, heads]) => [name, heads[head]]));
  const top = topOf([own.mean, ...(own.prior ? [own.prior] : []), ...found.draws.map((heads) => heads[head])]);
  const varies = own.deviation !== undefined, of = varies ? `${run.read.draws} draws of the guide` : "it carries no noise: every draw is this one";
  const shown = [{ map: own.mean, title: varies ? "Mean" : "Weights", note: of, ramp: ramps.mean, top }];
  const wide = varies ? topOf([own.deviation]) : 1;
  if (varies) shown.push({ map: own.deviation, title: "Standard deviation", note: `over the draws, up to ${write(largestOf(own.deviation), 2)}`, ramp: ramps.deviation, top: wide, links: [] });
  if (own.prior) shown.push({ map: own.prior, title: "Mean under the prior", note: "which knows nothing of the target", ramp: ramps.mean, top });
  const row = state.row ?? findRow(own.deviation ?? own.mean, side);
  const rowOf = (at) => ({
    bars: [{ name: "mean", colour: "var(--accent)", values: readRow(own.mean, side, at) }], marks: own.prior && readRow(own.prior, side, at),
    band: varies && { low: readRow(own.low, side, at), high: readRow(own.high, side, at) }, top: Math.max(0.05, ...readRow(own.high ?? own.mean, side, at), ...readRow(own.prior ?? own.mean, side, at)), label: "the chosen row",
  });
  const readOf = (at, column) => {
    const cell = column === null ? "" : ` → “${side.columns[column]}”: mean ${write(readRow(own.mean, side, at)[column])}${varies ? `, deviation ${write(readRow(own.deviation, side, at)[column])}` : ""}${own.prior ? `, prior ${write(readRow(own.prior, side, at)[column])}` : ""}`;
    return `${found.name}, head ${head}, ${nameRow(side, at)}${cell}`;
  };
  const keys = [swatch("var(--accent)", "mean weight"), varies ? swatch("var(--band)", "10 to 90 % of the draws", true) : null, own.prior ? swatch("var(--prior)", "mean under the prior", true) : null];
  if (found.draws.length) shown.push(sliderOf(found, head, ramps.mean, top));
  else if (varies && DATA.kept < run.read.draws) box.append(make("p", { class: "soft" }, "Single draws are left out, so that the page stays small."));
  drawMapsAndRow(box, shown, side, row, { rowOf, readOf, keys });
  box.append(make("div", { class: "bar" }, drawScale(ramps.mean, "0", nameTop(top, shown[0].map), "weight"), varies ? drawScale(ramps.deviation, "0", nameTop(wide, own.deviation), "standard deviation") : null));
  const sums = side.rows.map((_, at) => sumOf(readRow(own.mean, side, at)));
  Object.assign(box.dataset, { block: found.name, low: Math.min(...sums).toFixed(3), high: Math.max(...sums).toFixed(3), size: `${side.columns.length} x ${side.rows.length}`, draws: found.draws.length, prior: own.prior ? "apart" : "same" });
}

function drawThumbs(found, head, ramp) {
  const top = topOf(found.parts.mean);
  const thumbs = found.heads.map((name, place) => {
    const canvas = make("canvas", { "aria-hidden": "true" });
    if (!found.silent[place]) paint(canvas, found.parts.mean[place], found.side, top, ramp);
    return make("button", { "aria-pressed": place === head, "aria-label": `head ${name}`, onclick: () => go({ head: place }) }, found.silent[place] ? make("i", { class: "silent" }) : canvas, `head ${name}`);
  });
  return make("div", { class: "thumbs", role: "group", "aria-label": "Heads of the block" }, thumbs);
}

// A slider through the draws that were kept: its map is repainted where it stands.
function sliderOf(found, head, ramp, top) {
  const number = found.draws.length, draw = Math.min(state.draw, number - 1), words = (at) => `${at + 1} of ${number} that are kept`;
  const slide = (event) => {
    const figure = event.target.closest("figure");
    remember({ draw: +event.target.value });
    paint(figure.querySelector("canvas"), found.draws[state.draw][head], found.side, top, ramp);
    figure.querySelector("small").textContent = words(state.draw);
  };
  const control = make("label", {}, "Draw", make("input", { type: "range", min: 0, max: number - 1, value: draw, oninput: slide }));
  return { map: found.draws[draw][head], title: "One draw", note: words(draw), ramp, top, control };
}

// ---- alignments -------------------------------------------------------------------------------

const LAWS = { prior: ["Prior", "before the word is known", "var(--prior)"], guide: ["Guide", "", "var(--accent)"], posterior: ["Exact posterior", "given the word", "var(--exact)"] };

async function drawAlignments(run, box) {
  const sentence = run.sentences[state.sentence], [found] = (await openSentence(sentence)).alignments, { side } = found, ramp = rampOf("mean");
  box.append(make("div", { class: "bar" }, chooseSentence(run)));
  for (const [head, name] of found.heads.entries()) {
    const laws = Object.keys(LAWS), map = (law) => found.parts[law][head], note = (law) => (law === "guide" ? run.guide : LAWS[law][1]);
    box.append(make("h3", {}, name.replace(/decoder\.(\d+)\.alignment head/, "Block $1, head")));
    const shown = laws.map((law) => ({ map: map(law), title: LAWS[law][0], note: note(law), ramp, top: 1 }));
    const rowOf = (row) => ({ bars: laws.map((law) => ({ name: LAWS[law][0], colour: LAWS[law][2], values: readRow(map(law), side, row) })), top: 1, label: "the chosen word" });
    const readOf = (row, column) => `the word “${side.rows[row]}”${column === null ? "" : ` points at “${side.columns[column]}”: ${laws.map((law) => `${LAWS[law][0].toLowerCase()} ${write(readRow(map(law), side, row)[column])}`).join(", ")}`}`;
    drawMapsAndRow(box, shown, side, state.row ?? findRow(map("posterior"), side, map("prior")), { rowOf, readOf, keys: laws.map((law) => swatch(LAWS[law][2], LAWS[law][0])) });
    const sums = laws.flatMap((law) => side.rows.map((_, row) => sumOf(readRow(map(law), side, row))));
    Object.assign(box.dataset, { low: Math.min(...sums).toFixed(3), high: Math.max(...sums).toFixed(3), gold: side.links.length });
  }
  box.append(drawScale(ramp, "0", "1", "probability that the word points there"));
}

// ---- disagreement, selection, sentences -------------------------------------------------------

function drawMatrix(rows, names, ramp, top) {
  const grid = make("div", { class: "grid", style: `grid-template-columns: max-content repeat(${rows.length}, max-content)` });
  grid.append(make("span", {}), ...names.map((name) => make("span", { class: "at" }, name)));
  rows.forEach((row, first) => grid.append(make("span", { class: "at" }, names[first]), ...row.map((value, second) => make("span", { class: value === null ? "cell small silent" : "cell small", style: value === null ? "" : shadeOf(ramp, value / top), title: `${names[first]}, ${names[second]}: ${value === null ? "silent" : write(value, 4)}` }, value === null || rows.length > 8 ? "" : value.toFixed(2)))));
  return grid;
}

function drawPairs(run, box) {
  const ramp = rampOf("apart"), top = Math.max(1e-9, ...Object.values(run.pairs).flat(2)), grids = make("div", { class: "charts" });
  for (const [block, rows] of Object.entries(run.pairs)) grids.append(make("div", {}, make("h3", {}, `${chainTitle(chainOf(block))}, layer ${block.split(".")[1]}`), drawMatrix(rows, rows.map((_, head) => `${head}`), ramp, top)));
  box.append(drawScale(ramp, "0", write(top, 2), "nats a query (at most 0.69)"), grids);
  box.dataset.blocks = Object.keys(run.pairs).length;
}

function drawSelection(run, box) {
  const ramp = rampOf("mean");
  if (run.gates) box.append(make("p", {}, `${run.gates.open} of ${run.gates.gated} gates are open; ${write(run.gates.expected, 1)} are expected to be.`));
  box.append(make("div", { class: "keys" }, make("span", {}, make("span", { class: "cell small chosen", style: "display: inline-block; margin-right: 6px; vertical-align: middle" }), "speaks")), drawScale(ramp, "0", "1", "posterior probability that a head speaks"));
  for (const [chain, found] of Object.entries(run.selection)) {
    const charts = make("div", { class: "charts" }), blocks = Object.keys(found.probabilities).reverse();
    found.tasks.forEach((task, place) => {
      const heads = found.probabilities[blocks[0]][place].length, grid = make("div", { class: "grid", style: `grid-template-columns: max-content repeat(${heads}, max-content)` });
      for (const block of blocks) grid.append(make("span", { class: "at", style: "grid-column: 1" }, `layer ${block.split(".")[1]}`), ...found.probabilities[block][place].map((chance, head) => make("span", { class: `cell small${found.chosen[block][place][head] ? " chosen" : ""}`, style: shadeOf(ramp, chance), title: `${block}, head ${head}: ${write(chance)}` }, heads > 12 ? "" : chance.toFixed(2))));
      charts.append(make("div", {}, task ? make("h4", {}, task) : null, grid));
    });
    if (found.tasks.length > 1) charts.append(make("div", {}, make("h4", {}, `Heads in common (${write(found.by_chance, 2)} by chance)`), drawMatrix(found.sharing, found.tasks.map((task) => shorten(task, 9)), rampOf("apart"), 1)));
    box.append(make("h3", {}, chainTitle(chain)), charts);
  }
  box.dataset.cells = box.querySelectorAll(".cell").length;
}

function tellTail(value) {
  if (value === null) return "not known";
  if (value === "none") return "no tail: the largest weights are equal";
  return `${write(value, 2)}, ${value > 0.7 ? "too heavy a tail to trust IWAE" : "fine"}`;
}

function drawSentences(run, box) {
  run.sentences.forEach((sentence, place) => {
    const { bounds } = sentence, line = (name, text) => (text === null || text === undefined ? null : [make("dt", {}, name), make("dd", {}, text)]);
    const figures = ["elbo", "iwae", "exact", "kl", "plug_in"].filter((name) => bounds[name] !== null && !(bounds.exact !== null && ["iwae", "plug_in"].includes(name)));
    box.append(make("article", { class: "sentence" },
      make("div", { class: "bar" }, make("b", {}, `Sentence ${place + 1}`), sentence.maps.length ? make("button", { onclick: () => go({ view: "head", sentence: place, row: null }) }, "See its heads") : null),
      make("dl", {}, line("task", sentence.task), line("source", sentence.source), line(sentence.source ? "reference" : "text", sentence.reference), line("translation", sentence.hypothesis)),
      make("div", { class: "keys" }, figures.map((name) => make("span", {}, make("span", { class: `word ${FIGURES[name][2]}` }, FIGURES[name][1]), ` ${FIGURES[name][0]} `, make("b", {}, write(bounds[name], 4)))), bounds.exact === null ? make("span", {}, "k-hat: ", tellTail(bounds.pareto_k)) : null)));
  });
  box.dataset.sentences = run.sentences.length;
}

const someMaps = (run, name) => run.sentences.length > 0 && run.sentences[0][name].length > 0;
const VIEWS = [
  { key: "bounds", title: "Bounds", says: "What each run reports on the test part, in nats a target token: higher is better. A true bound lies below the exact log p(y | x).", offered: () => true, draw: drawBounds },
  { key: "training", title: "Training", says: "The same figures on validation while the run was trained, and what the posteriors of each chain pay.", offered: (run) => run.curves.steps, draw: drawTraining },
  { key: "heads", title: "All heads", says: "Every head is a cell, a row is a layer, the uppermost above; a cell opens its head.", offered: (run) => run.grid && Object.keys(run.grid.values).length, draw: drawHeads },
  { key: "head", title: "One head", says: "Where a head looks: each row reads the columns. The weights of a random head have a mean and a deviation; point at a row, or choose it with the arrow keys, to see its band.", offered: (run) => someMaps(run, "maps"), draw: drawHead },
  { key: "alignments", title: "Alignments", says: "Where each word of the target points: before it is known, as the guide believes, and exactly, by Bayes' rule.", offered: (run) => someMaps(run, "alignments"), draw: drawAlignments },
  { key: "pairs", title: "Disagreement", says: "How differently two heads of a block look: Jensen-Shannon divergence of their weights; 0 where they read the same.", offered: (run) => Object.keys(run.pairs ?? {}).length, draw: drawPairs },
  { key: "selection", title: "Selection", says: "How likely each head is to speak, as training left it, and which of them do.", offered: (run) => Object.keys(run.selection ?? {}).length, draw: drawSelection },
  { key: "sentences", title: "Sentences", says: "Sentences of the corpus with the run's own translation and bound, in nats a token; k-hat says whether the draws suffice.", offered: (run) => run.sentences.length, draw: drawSentences },
];
