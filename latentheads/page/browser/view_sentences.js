// Sentences: where a head looks in one, where its words point, and what it is worth.

async function drawHead(run, box) {
  const { maps } = await openSentence(run.sentences[state.sentence]);
  const reading = maps.filter((each) => each.name.endsWith(".cross"));
  const found = maps.find((each) => each.name === state.block) ?? reading.at(-1) ?? maps.at(-1);
  const head = Math.min(state.head, found.heads.length - 1);
  const choose = (place) => go({ block: maps[place].name, head: 0, row: null });
  const titles = maps.map((each) => titleOf(each.name));
  const blocks = makeSelect("Block", titles, maps.indexOf(found), choose);
  box.append(make("div", { class: "bar" }, chooseSentence(run), blocks), drawThumbs(found, head));
  Object.assign(box.dataset, { block: found.name, draws: found.draws.length });
  if (found.silent[head]) box.append(make("p", {}, `Head ${head} is silent in this sentence: it says nothing.`));
  else drawWeights(run, box, found, head);
}

// The heads of a block, small: each is a button.
function drawThumbs(found, head) {
  const top = topOf(found.parts.mean);
  const ramp = rampOf("mean");
  const thumbs = found.heads.map((name, place) => {
    const canvas = make("canvas", { "aria-hidden": "true" });
    if (!found.silent[place]) paint(canvas, found.parts.mean[place], found.side, top, ramp);
    const picture = found.silent[place] ? make("i", { class: "silent" }) : canvas;
    const given = { "aria-pressed": place === head, onclick: () => go({ head: place }) };
    return make("button", given, picture, `head ${name}`);
  });
  return make("div", { class: "thumbs", role: "group", "aria-label": "Heads of the block" }, thumbs);
}

// The weights of a head: mean, deviation, those of the prior, and the draws one by one.
function drawWeights(run, box, found, head) {
  const { side } = found;
  const own = Object.fromEntries(Object.entries(found.parts).map(([name, heads]) => [name, heads[head]]));
  const top = topOf([own.mean, own.prior ?? own.mean, ...found.draws.map((heads) => heads[head])]);
  const wide = own.deviation ? topOf([own.deviation]) : 1;
  const [blues, oranges] = [rampOf("mean"), rampOf("deviation")];
  const shown = [{ map: own.mean, title: "Weights", note: "no noise: every draw is this one", ramp: blues, top }];
  if (own.deviation) {
    Object.assign(shown[0], { title: "Mean", note: `of ${run.read.draws} draws of the guide` });
    const most = `over the draws, up to ${write(largestOf(own.deviation), 2)}`;
    shown.push({ map: own.deviation, title: "Standard deviation", note: most, ramp: oranges, top: wide, links: [] });
  }
  const before = { title: "Mean under the prior", note: "which knows nothing of the target", ramp: blues, top };
  if (own.prior) shown.push({ map: own.prior, ...before });
  if (found.draws.length) shown.push(makeSlider(found, head, blues, top));
  else if (own.deviation) box.append(note("Single draws are left out, so that the page stays small."));
  const keys = [swatch("var(--accent)", "mean weight")];
  if (own.deviation) keys.push(stroke("var(--band)", "10 to 90 % of the draws"));
  if (own.prior) keys.push(stroke("var(--prior)", "mean under the prior"));
  const row = state.row ?? findRow(own.deviation ?? own.mean, side);
  drawMapsAndRow(box, shown, side, row, {
    rowOf: (at) => barsOf(own, side, at),
    readOf: (at, column) => `${found.name}, head ${head}, ${tellCell(own, side, at, column)}`,
    keys,
  });
  const upTo = (end, map) => `${write(end, 2)}${largestOf(map) > end ? " and more" : ""}`;
  const scales = [makeScale(blues, upTo(top, own.mean), "weight")];
  if (own.deviation) scales.push(makeScale(oranges, upTo(wide, own.deviation), "standard deviation"));
  box.append(make("div", { class: "bar" }, scales));
  Object.assign(box.dataset, sumRows([own.mean], side), {
    size: `${side.columns.length} x ${side.rows.length}`,
    prior: own.prior ? "apart" : "same",
  });
}

// A row as bars: the mean, the band of the draws, and the prior's mean.
function barsOf(own, side, at) {
  const read = (map) => map && readRow(map, side, at);
  const [mean, low, high, prior] = [own.mean, own.low, own.high, own.prior].map(read);
  const top = Math.max(0.05, ...mean, ...(high ?? []), ...(prior ?? []));
  const bars = [{ name: "mean", colour: "var(--accent)", values: mean }];
  return { bars, band: low && { low, high }, marks: prior, top, label: `row ${side.rows[at]}` };
}

function tellCell(own, side, row, column) {
  const predicted = side.predicts[row];
  const words = `row “${side.rows[row]}”${predicted === undefined ? "" : `, which predicts “${predicted}”`}`;
  if (column === null) return words;
  const told = { mean: own.mean, deviation: own.deviation, prior: own.prior };
  const known = Object.entries(told).filter(([, map]) => map);
  const figures = known.map(([name, map]) => `${name} ${write(readRow(map, side, row)[column])}`);
  return `${words}, reads “${side.columns[column]}”: ${figures.join(", ")}`;
}

// A map with a slider through the draws that were kept: it is repainted where it stands.
function makeSlider(found, head, ramp, top) {
  const last = found.draws.length - 1;
  const draw = Math.min(state.draw, last);
  const tell = (place) => `${place + 1} of ${last + 1} that are kept`;
  const oninput = (event) => {
    const figure = event.target.closest("figure");
    remember({ draw: Number(event.target.value) });
    paint(figure.querySelector("canvas"), found.draws[state.draw][head], found.side, top, ramp);
    figure.querySelector("small").textContent = tell(state.draw);
  };
  const control = make("label", {}, "Draw", make("input", { type: "range", min: 0, max: last, value: draw, oninput }));
  return { map: found.draws[draw][head], title: "One draw", note: tell(draw), ramp, top, control };
}

const LAWS = {
  prior: { name: "Prior", note: "before the word is known", colour: "var(--prior)" },
  guide: { name: "Guide", note: "", colour: "var(--accent)" },
  posterior: { name: "Exact posterior", note: "given the word", colour: "var(--exact)" },
};

async function drawAlignments(run, box) {
  const [found] = (await openSentence(run.sentences[state.sentence])).alignments;
  const { side } = found;
  const ramp = rampOf("mean");
  const every = Object.values(found.parts).flat();
  box.append(make("div", { class: "bar" }, chooseSentence(run)));
  found.heads.forEach((name, head) => {
    const laws = Object.entries(LAWS).map(([law, said]) => ({
      ...said,
      map: found.parts[law][head],
      note: law === "guide" ? `${run.guide}${run.reads ? `, reads the ${run.reads}` : ""}` : said.note,
    }));
    const shown = laws.map((law) => ({ map: law.map, title: law.name, note: law.note, ramp, top: 1 }));
    const bars = (row) =>
      laws.map((law) => ({ name: law.name, colour: law.colour, values: readRow(law.map, side, row) }));
    const figures = (row, column) =>
      laws.map((law) => `${law.name.toLowerCase()} ${write(readRow(law.map, side, row)[column])}`);
    const points = (row, column) =>
      column === null ? "" : ` points at “${side.columns[column]}”: ${figures(row, column).join(", ")}`;
    const [block, place] = name.match(/\d+/g);
    box.append(make("h3", {}, `Block ${block}, head ${place}`));
    drawMapsAndRow(box, shown, side, state.row ?? findRow(laws[2].map, side, laws[0].map), {
      rowOf: (row) => ({ bars: bars(row), top: 1, label: `the word ${side.rows[row]}` }),
      readOf: (row, column) => `the word “${side.rows[row]}”${points(row, column)}`,
      keys: laws.map((law) => swatch(law.colour, law.name)),
    });
  });
  box.append(makeScale(ramp, "1", "probability that the word points there"));
  Object.assign(box.dataset, sumRows(every, side), { gold: side.links.length });
}

function tellTail(value) {
  if (value === null) return "not known";
  if (value === "none") return "no tail: the largest weights are equal";
  return `${write(value, 2)}, ${value > 0.7 ? "too heavy a tail to trust IWAE" : "fine"}`;
}

// What bounds a sentence alone bounds nothing where all share a choice of heads that has its price.
const GIVEN = ["elbo", "kl"];
const isGiven = ({ bounds }) => bounds.shared_kl > 0;
const wordIn = (sentence, name) =>
  GIVEN.includes(name) && isGiven(sentence)
    ? make("span", { class: "word none" }, "given which heads speak")
    : wordOf(name);

function drawSentences(run, box) {
  const line = (name, text) => (isKnown(text) ? [make("dt", {}, name), make("dd", { dir: "auto" }, text)] : []);
  run.sentences.forEach((sentence, place) => {
    const { bounds } = sentence;
    const names = ["elbo", "iwae", "exact", "kl", "plug_in"].filter((name) => figureOf(bounds, name) !== null);
    const figures = names.map((name) =>
      make("span", {}, wordIn(sentence, name), ` ${DATA.scores[name].title} `, make("b", {}, write(bounds[name], 4))),
    );
    if (!isKnown(bounds.exact)) figures.push(make("span", {}, `k-hat: ${tellTail(bounds.pareto_k)}`));
    const open = make("button", { onclick: () => go({ view: "head", sentence: place, row: null }) }, "See its heads");
    const said = [
      ...line("task", sentence.task),
      ...line("source", sentence.source),
      ...line(isKnown(sentence.source) ? "reference" : "text", sentence.reference),
      ...line(run.writes, sentence.hypothesis),
    ];
    const name = make("b", {}, `Sentence ${place + 1}`);
    const head = make("div", { class: "bar" }, name, sentence.maps.length ? open : null);
    const keys = make("div", { class: "keys" }, figures);
    box.append(make("article", { class: "sentence" }, head, make("dl", {}, said), keys));
  });
  const priced = run.sentences.find(isGiven);
  if (priced) {
    const nats = write(priced.bounds.shared_kl, 4);
    const words = `All sentences share which heads speak. Its KL, ${nats} nats, is paid once for the whole corpus: the bound of the run counts it, the figures of single sentences do not.`;
    box.append(note(words));
  }
  box.dataset.sentences = run.sentences.length;
}
