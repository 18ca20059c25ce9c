// Views of single sentences: attention maps, alignments, and bounds.

async function drawHead(run, box) {
  const { maps } = await openSentence(run.sentences[state.sentence]);
  const cross = maps.filter(({ name }) => name.endsWith(".cross"));
  const block = maps.find(({ name }) => name === state.block) ?? cross.at(-1) ?? maps.at(-1);
  const head = Math.min(state.head, block.heads.length - 1);
  const choose = (index) => go({ block: maps[index].name, head: 0, row: null });
  const titles = maps.map(({ name }) => titleOf(name));
  const blocks = makeSelect("Block", titles, maps.indexOf(block), choose);
  box.append(make("div", { class: "bar" }, chooseSentence(run), blocks), drawThumbs(block, head));
  Object.assign(box.dataset, { block: block.name, draws: block.draws.length });
  if (!block.active[head]) box.append(make("p", {}, `Head ${head} is inactive in this sentence.`));
  else drawWeights(run, box, block, head);
}

// Whether a head is active in some samples only: its gate is sampled.
const isPartial = (share) => share > 0 && share < 1;
const percent = (share) => `${Math.round(100 * share)} %`;

// Thumbnails of the heads of a block, as buttons, with the share of samples in which each is active.
function drawThumbs(block, head) {
  const limit = colourLimitOf(block.parts.mean);
  const ramp = rampOf("mean");
  const thumbs = block.heads.map((name, index) => {
    const canvas = make("canvas", { "aria-hidden": "true" });
    if (block.active[index]) paint(canvas, block.parts.mean[index], block.side, limit, ramp);
    const picture = block.active[index] ? canvas : make("i", { class: "silent" });
    const attributes = { "aria-pressed": index === head, onclick: () => go({ head: index }) };
    const share = isPartial(block.active[index]) ? `, ${percent(block.active[index])}` : "";
    return make("button", attributes, picture, `head ${name}${share}`);
  });
  return make("div", { class: "thumbs", role: "group", "aria-label": "Heads of the block" }, thumbs);
}

// The weights of a head: mean, standard deviation, mean under the prior, and single samples.
function drawWeights(run, box, block, head) {
  const { side } = block;
  const parts = Object.fromEntries(Object.entries(block.parts).map(([name, heads]) => [name, heads[head]]));
  const limit = colourLimitOf([parts.mean, parts.prior ?? parts.mean, ...block.draws.map((heads) => heads[head])]);
  const deviationLimit = parts.deviation ? colourLimitOf([parts.deviation]) : 1;
  const [blues, oranges] = [rampOf("mean"), rampOf("deviation")];
  const share = block.active[head];
  const samples = `${run.read.draws} samples from the guide`;
  const which = isPartial(share) ? `the ${Math.round(share * run.read.draws)} of ${samples} in which it is active` : samples;
  const same = isPartial(share) ? `equal in ${which}` : "no noise: all samples are equal";
  const shown = [{ map: parts.mean, title: "Weights", note: same, ramp: blues, limit }];
  if (parts.deviation) {
    Object.assign(shown[0], { title: "Mean", note: `over ${which}` });
    const note = `over samples, up to ${write(largestOf(parts.deviation), 2)}`;
    shown.push({ map: parts.deviation, title: "Standard deviation", note, ramp: oranges, limit: deviationLimit, links: [] });
  }
  const prior = { title: "Mean under the prior", note: "not conditioned on the target", ramp: blues, limit };
  if (parts.prior) shown.push({ map: parts.prior, ...prior });
  if (block.draws.length) shown.push(makeSlider(block, head, blues, limit));
  else if (parts.deviation) box.append(note("Single samples are left out to keep the page small."));
  const keys = [swatch("var(--accent)", "mean weight")];
  if (parts.deviation) keys.push(stroke("var(--band)", "10 to 90 % of samples"));
  if (parts.prior) keys.push(stroke("var(--prior)", "mean under the prior"));
  const row = state.row ?? selectRow(parts.deviation ?? parts.mean, side);
  drawMapsAndRow(box, shown, side, row, {
    rowOf: (at) => barsOf(parts, side, at),
    captionOf: (at, column) => `${block.name}, head ${head}, ${describeCell(parts, side, at, column)}`,
    keys,
  });
  const upTo = (end, map) => `${write(end, 2)}${largestOf(map) > end ? " and more" : ""}`;
  const scales = [makeScale(blues, upTo(limit, parts.mean), "weight")];
  if (parts.deviation) scales.push(makeScale(oranges, upTo(deviationLimit, parts.deviation), "standard deviation"));
  box.append(make("div", { class: "bar" }, scales));
  Object.assign(box.dataset, sumRows([parts.mean], side), {
    size: `${side.columns.length} x ${side.rows.length}`,
    prior: parts.prior ? "apart" : "same",
  });
}

// A row as bars: the mean, the band of the samples, and the mean under the prior.
function barsOf(parts, side, at) {
  const weightsOf = (map) => map && readRow(map, side, at);
  const [mean, low, high, prior] = [parts.mean, parts.low, parts.high, parts.prior].map(weightsOf);
  const top = Math.max(0.05, ...mean, ...(high ?? []), ...(prior ?? []));
  const bars = [{ name: "mean", colour: "var(--accent)", values: mean }];
  return { bars, band: low && { low, high }, marks: prior, top, label: `row ${side.rows[at]}` };
}

function describeCell(parts, side, row, column) {
  const predicted = side.predicts[row];
  const words = `row “${side.rows[row]}”${predicted === undefined ? "" : `, which predicts “${predicted}”`}`;
  if (column === null) return words;
  const { mean, deviation, prior } = parts;
  const present = Object.entries({ mean, deviation, prior }).filter(([, map]) => map);
  const values = present.map(([name, map]) => `${name} ${write(readRow(map, side, row)[column])}`);
  return `${words}, attends to “${side.columns[column]}”: ${values.join(", ")}`;
}

// A map with a slider over the kept samples.
function makeSlider(block, head, ramp, limit) {
  const last = block.draws.length - 1;
  const draw = Math.min(state.draw, last);
  const isActive = (index) => block.draws[index][head].some((byte) => byte > 0);
  const noteOf = (index) => `${index + 1} of ${last + 1}${isActive(index) ? "" : ": inactive"}`;
  const oninput = (event) => {
    const figure = event.target.closest("figure");
    remember({ draw: Number(event.target.value) });
    paint(figure.querySelector("canvas"), block.draws[state.draw][head], block.side, limit, ramp);
    figure.querySelector("small").textContent = noteOf(state.draw);
  };
  const control = make("label", {}, "Sample", make("input", { type: "range", min: 0, max: last, value: draw, oninput }));
  return { map: block.draws[draw][head], title: "One sample", note: noteOf(draw), ramp, limit, control };
}

const DISTRIBUTIONS = {
  prior: { name: "Prior", note: "before the token is known", colour: "var(--prior)" },
  guide: { name: "Guide", note: "", colour: "var(--accent)" },
  posterior: { name: "Exact posterior", note: "given the token", colour: "var(--exact)" },
};

// The text with the words that rather point at a position marked; a word's title says at which.
function markPointing(side, posterior) {
  let marked = 0;
  const words = side.rows.flatMap((word, row) => {
    const probabilities = readRow(posterior, side, row);
    const best = probabilities.indexOf(Math.max(...probabilities.slice(1)), 1);
    if (probabilities[0] >= 0.5 || best < 1) return [word, " "];
    marked += 1;
    const title = `“${side.columns[best]}”, position ${best}: ${write(probabilities[best])}`;
    return [make("mark", { title }, word), " "];
  });
  const key = `Marked: the exact posterior of “${side.no_position}” is below one half. Hold the pointer over a word to see its position.`;
  return { marked, text: make("div", {}, make("p", { class: "text", dir: "auto" }, words), note(key)) };
}

async function drawAlignments(run, box) {
  const [block] = (await openSentence(run.sentences[state.sentence])).alignments;
  const { side } = block;
  const ramp = rampOf("mean");
  const maps = Object.values(block.parts).flat();
  box.append(make("div", { class: "bar" }, chooseSentence(run)));
  block.heads.forEach((name, head) => {
    const distributions = Object.entries(DISTRIBUTIONS).map(([key, style]) => ({
      ...style,
      map: block.parts[key][head],
      note: key === "guide" ? `${run.guide}${run.condition_on ? `, conditioned on the ${run.condition_on}` : ""}` : style.note,
    }));
    const shown = distributions.map(({ map, name, note }) => ({ map, title: name, note, ramp, limit: 1 }));
    const bars = (row) =>
      distributions.map(({ name, colour, map }) => ({ name, colour, values: readRow(map, side, row) }));
    const probabilities = (row, column) =>
      distributions.map(({ name, map }) => `${name.toLowerCase()} ${write(readRow(map, side, row)[column])}`);
    const describe = (row, column) =>
      column === null ? "" : ` aligned with “${side.columns[column]}”: ${probabilities(row, column).join(", ")}`;
    const [layer, index] = name.match(/\d+/g);
    box.append(make("h3", {}, `Block ${layer}, head ${index}`));
    if (side.no_position) {
      const { marked, text } = markPointing(side, block.parts.posterior[head]);
      box.append(text);
      Object.assign(box.dataset, { marked });
    }
    drawMapsAndRow(box, shown, side, state.row ?? selectRow(distributions[2].map, side, distributions[0].map), {
      rowOf: (row) => ({ bars: bars(row), top: 1, label: `the token ${side.rows[row]}` }),
      captionOf: (row, column) => `the token “${side.rows[row]}”${describe(row, column)}`,
      keys: distributions.map(({ colour, name }) => swatch(colour, name)),
    });
  });
  box.append(makeScale(ramp, "1", `probability of ${side.no_position ? `${side.no_position} or ` : ""}the position`));
  Object.assign(box.dataset, sumRows(maps, side), { gold: side.links.length });
}

function describeTail(value) {
  if (value === null) return "unknown";
  if (value === "none") return "no tail: the largest weights are equal";
  return `${write(value, 2)}, ${value > 0.7 ? "too heavy a tail to trust IWAE" : "fine"}`;
}

// The bound of a single sentence is conditional if all sentences share a latent selection with a KL.
const CONDITIONAL = ["elbo", "kl"];
const isConditional = ({ bounds }) => bounds.shared_kl > 0;
const kindIn = (sentence, name) =>
  CONDITIONAL.includes(name) && isConditional(sentence)
    ? make("span", { class: "word none" }, "given the selection")
    : labelOf(name);

// The probability of each head to be active in a sentence, one row per distribution.
function drawInclusion(inclusion, sentence) {
  const ramp = rampOf("apart");
  const charts = Object.entries(inclusion).map(([block, probabilities]) => {
    const rows = Object.entries(DISTRIBUTIONS).map(([key, { name }]) => {
      const cells = probabilities[key].map((probability, head) => {
        const onclick = () => go({ view: "head", sentence, block, head, row: null });
        return makeCell(probability, ramp, 1, `${block}, head ${head}, ${name.toLowerCase()}`, { onclick });
      });
      return [name, cells];
    });
    const above = probabilities.prior.map((_, head) => `head ${head}`);
    const title = make("h4", {}, `${titleOf(block)}: probability that the head is active`);
    return make("div", {}, title, makeGrid(above.length, above, rows));
  });
  return charts.length ? make("div", { class: "charts" }, charts) : null;
}

function drawSentences(run, box) {
  const line = (name, text) => (isKnown(text) ? [make("dt", {}, name), make("dd", { dir: "auto" }, text)] : []);
  run.sentences.forEach((sentence, index) => {
    const { bounds } = sentence;
    const names = ["elbo", "iwae", "exact", "kl", "plug_in"].filter((name) => figureOf(bounds, name) !== null);
    const figures = names.map((name) =>
      make("span", {}, kindIn(sentence, name), ` ${DATA.scores[name].title} `, make("b", {}, write(bounds[name], 4))),
    );
    if (!isKnown(bounds.exact)) figures.push(make("span", {}, `k-hat: ${describeTail(bounds.pareto_k)}`));
    const open = make("button", { onclick: () => go({ view: "head", sentence: index, row: null }) }, "Show its heads");
    const texts = [
      ...line("task", sentence.task),
      ...line("source", sentence.source),
      ...line(isKnown(sentence.source) ? "reference" : "text", sentence.reference),
      ...line(run.writes, sentence.hypothesis),
    ];
    const name = make("b", {}, `Sentence ${index + 1}`);
    const head = make("div", { class: "bar" }, name, sentence.maps.length ? open : null);
    const keys = make("div", { class: "keys" }, figures);
    const gates = drawInclusion(sentence.inclusion, index);
    box.append(make("article", { class: "sentence" }, head, make("dl", {}, texts), keys, gates));
  });
  const conditional = run.sentences.find(isConditional);
  if (conditional) {
    const nats = write(conditional.bounds.shared_kl, 4);
    const words = `All sentences share the selection of heads. Its KL, ${nats} nats, is counted once for the whole corpus: it is in the bound of the run, but not in the values of single sentences.`;
    box.append(note(words));
  }
  box.dataset.sentences = run.sentences.length;
  box.dataset.cells = box.querySelectorAll(".cell").length;
}
