// What runs are, what they reported, and how they were trained.

// Each kind of score: the class of its word, and the word.
const KINDS = { bound: ["bound", "bound"], exact: ["exact", "exact"], "plug-in": ["none", "no bound"], metric: ["score", "metric"] };
const KINDS_OF_UNIT = { share: ["none", "share"] };
const kindOf = (name) => KINDS_OF_UNIT[DATA.scores[name].unit] ?? KINDS[DATA.scores[name].kind];
const wordOf = (name) => make("span", { class: `word ${kindOf(name)[0]}` }, kindOf(name)[1]);
const headingOf = (name) => [DATA.scores[name].title.replace("_{k}", ""), make("br"), wordOf(name)];

// What says nothing beside the exact value: the plug-in network is then that distribution.
function figureOf(figures, name) {
  if (isKnown(figures[DATA.scores[name].estimates])) return null;
  return figures[name] ?? null;
}

// The log p of the corpus may be known of some sentences alone.
function tellPart(figures, name) {
  if (name !== "truth" || !isKnown(figures.truth) || figures.truth_sentences === figures.sentences) return null;
  return make("div", { class: "soft" }, `of ${figures.truth_sentences} of ${figures.sentences} sentences`);
}

// A class and its options as a command line names them: Cascaded, reads target.
function tellValue(value) {
  if (value?.class_path) {
    const own = Object.entries(value.init_args ?? {}).map(([name, each]) => `${name} ${tellValue(each)}`);
    return [value.class_path.split(".").pop(), ...own].join(", ");
  }
  return JSON.stringify(value).replaceAll('"', "");
}

// Runs of different test texts stand side by side, and say nothing of each other.
function tellTexts() {
  const texts = new Set(DATA.runs.map((each) => each.text).filter(isKnown));
  if (texts.size < 2) return null;
  return make("p", { class: "warning" }, "These runs were reported on different test texts: their figures cannot be compared.");
}

function drawBounds(run, box) {
  const found = DATA.runs.map((each) => each.figures.test ?? {});
  const shown = Object.keys(DATA.scores).filter((name) => found.some((each) => figureOf(each, name) !== null));
  const rows = DATA.runs.map((each, place) => {
    const open = make("button", { "aria-pressed": each === run, onclick: () => go({ run: place }) }, each.name);
    const digits = (name) => (DATA.scores[name].unit === "nats per token" ? 4 : 2);
    const figures = shown.map((name) => [
      write(figureOf(found[place], name), digits(name)),
      tellPart(found[place], name),
    ]);
    const said = [each.recipe, each.finished ? each.other : "not finished"].filter(isKnown);
    return [[open, ...said.map((words) => make("div", { class: "soft" }, words))], ...figures];
  });
  const words = shown.map((name) => make("li", {}, make("b", {}, DATA.scores[name].title), `: ${DATA.scores[name].meaning}`));
  const warning = tellTexts();
  if (warning) box.append(warning);
  box.append(makeTable(["run", ...shown.map(headingOf)], rows), make("ul", { class: "soft" }, words));
  box.dataset.rows = rows.length;
  drawPerplexity(box);
  drawOptions(run, box);
}

function drawPerplexity(box) {
  const found = DATA.runs.flatMap((run) =>
    run.perplexity.filter((each) => each.part === "test").map((each) => [`${run.name}, ${each.mode}`, each.word]),
  ).filter(([, word]) => Object.keys(word).length);
  if (!found.length) return;
  const names = ["elbo", "iwae", "exact", "plug_in"].filter((name) =>
    found.some(([, word]) => figureOf(word, name) !== null),
  );
  const rows = found.map(([name, word]) => [name, ...names.map((each) => write(figureOf(word, each), 2))]);
  box.append(make("h3", {}, "Perplexity by word: lower is better"), makeTable(["text", ...names.map(headingOf)], rows));
}

function drawOptions(run, box) {
  const value = (name) => tellValue(run.options[name]);
  const list = (names) =>
    make(
      "dl",
      { class: "options" },
      names.map((name) => [make("dt", {}, name), make("dd", {}, value(name))]),
    );
  const others = Object.keys(run.options).filter((name) => !run.changed.includes(name));
  const all = make("details", {}, make("summary", {}, `All other options (${others.length})`), list(others));
  box.append(make("h3", {}, `Options of ${run.name} that are not the default`), list(run.changed), all);
}

const LINES = {
  elbo: { name: "bound (ELBO)", colour: "var(--bound)" },
  log_likelihood: { name: "expected log-likelihood", colour: "var(--bound)", dash: "6 4" },
  exact: { name: "exact log p", colour: "var(--exact)" },
  plug_in: { name: "plug-in network (no bound)", colour: "var(--none)", dash: "2 4" },
  objective: { name: "objective on training batches", colour: "var(--none)", thin: true },
};
const DASHES = [undefined, "8 3", "2 3", "8 3 2 3"]; // those of runs that share a colour
const HIGHER = "nats a token: higher is better";
const negate = (values) => values.map((value) => (isKnown(value) ? -value : NaN));

function drawTraining(run, box) {
  const { steps, bound, kl = {}, speaking, truth, truth_of } = run.curves;
  const room = roomOf(box);
  const lines = Object.entries(bound).map(([name, values]) => ({ ...LINES[name], steps, values: negate(values) }));
  if (isKnown(truth)) {
    const some = truth_of ? `, ${truth_of[0]} of ${truth_of[1]} sentences` : "";
    const values = steps.map(() => -truth);
    lines.push({ name: `true log p${some}`, colour: "var(--ink)", dash: "1 3", thin: true, steps, values });
  }
  const charts = [drawLines("Bound on validation", HIGHER, lines, { decades: true, negated: true, room })];
  const trained = DATA.runs.filter((each) => each.curves.steps);
  const all = trained.map((each, place) => ({
    name: each.name,
    colour: `var(--run-${place % 6})`,
    dash: DASHES[Math.floor(place / 6) % DASHES.length],
    steps: each.curves.steps,
    values: negate(each.curves.bound.elbo),
  }));
  if (all.length > 1) charts.push(drawLines("True bound of every run", HIGHER, all, { decades: true, negated: true, room }));
  const ofChains = (found) => Object.entries(found).map(([chain, values]) => ({ ...CHAINS[chain], steps, values }));
  const paid = ofChains(kl).filter((line) => line.values.some((value) => value > 0));
  if (paid.length) charts.push(drawLines("KL of each chain", "nats a token", paid, { zero: true, room }));
  if (speaking)
    charts.push(drawLines("Heads expected to speak", "in each chain", ofChains(speaking), { zero: true, room }));
  box.append(make("div", { class: "lines" }, charts));
}
