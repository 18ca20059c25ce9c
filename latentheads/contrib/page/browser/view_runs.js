// Views of the reports, options and training of runs.

// The class and the label of each kind of score.
const KINDS = { bound: ["bound", "bound"], term: ["bound", "term"], exact: ["exact", "exact"], "plug-in": ["none", "no bound"], metric: ["score", "metric"] };
const UNIT_KINDS = { share: ["none", "share"] };
const kindOf = (name) => UNIT_KINDS[DATA.scores[name].unit] ?? KINDS[DATA.scores[name].kind];
const labelOf = (name) => make("span", { class: `word ${kindOf(name)[0]}` }, kindOf(name)[1]);
const headingOf = (name) => [
  DATA.scores[name].title.replace("_{k}", "").replace("log p", "log\u00a0p"),
  make("br"),
  labelOf(name),
];

// What says nothing beside the exact value: the plug-in network is then that distribution.
function figureOf(figures, name) {
  if (isKnown(figures[DATA.scores[name].estimates])) return null;
  return figures[name] ?? null;
}

// The true log p may be known for some sentences only.
function coverageOf(figures, name) {
  if (name !== "truth" || !isKnown(figures.truth) || figures.truth_sentences === figures.sentences) return null;
  return make("div", { class: "soft" }, `for ${figures.truth_sentences} of ${figures.sentences} sentences`);
}

// Warns if runs were reported on different test texts.
function warnTexts() {
  const texts = new Set(DATA.runs.map(({ text }) => text).filter(isKnown));
  if (texts.size < 2) return null;
  return make("p", { class: "warning" }, "These runs were reported on different test texts: their values cannot be compared.");
}

function drawBounds(run, box) {
  const reports = DATA.runs.map(({ figures }) => figures.test ?? {});
  const shown = Object.keys(DATA.scores).filter((name) => reports.some((report) => figureOf(report, name) !== null));
  const rows = DATA.runs.map((other, index) => {
    const open = make("button", { "aria-pressed": other === run, onclick: () => go({ run: index }) }, other.name);
    const digits = (name) => (DATA.scores[name].unit === "nats per token" ? 4 : 2);
    const figures = shown.map((name) => [
      write(figureOf(reports[index], name), digits(name)),
      coverageOf(reports[index], name),
    ]);
    const notes = [other.recipe, other.finished ? other.other : "not finished"].filter(isKnown);
    // a recipe breaks behind its +, not within a word
    const parts = (words) => words.split("+").flatMap((part, index) => (index ? ["+", make("wbr", {}), part] : [part]));
    return [[open, ...notes.map((words) => make("div", { class: "soft" }, parts(words)))], ...figures];
  });
  const words = shown.map((name) => make("li", {}, make("b", {}, DATA.scores[name].title), `: ${DATA.scores[name].meaning}`));
  const warning = warnTexts();
  if (warning) box.append(warning);
  addTableOfRuns(box, ["run", ...shown.map(headingOf)], rows);
  box.append(make("ul", { class: "soft" }, words));
  box.dataset.rows = rows.length;
  drawPerplexity(box);
  drawOptions(run, box);
}

function drawPerplexity(box) {
  const perplexities = DATA.runs.flatMap((run) =>
    run.perplexity.filter(({ part }) => part === "test").map(({ mode, word }) => [`${run.name}, ${mode}`, word]),
  ).filter(([, word]) => Object.keys(word).length);
  if (!perplexities.length) return;
  const names = ["elbo", "iwae", "exact", "plug_in"].filter((name) =>
    perplexities.some(([, word]) => figureOf(word, name) !== null),
  );
  const rows = perplexities.map(([name, word]) => [name, ...names.map((value) => write(figureOf(word, value), 2))]);
  box.append(make("h3", {}, "Perplexity by word: lower is better"));
  addTableOfRuns(box, ["text", ...names.map(headingOf)], rows);
}

function drawOptions(run, box) {
  const value = (name) => JSON.stringify(run.options[name]).replaceAll('"', "");
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
const DASHES = [undefined, "8 3", "2 3", "8 3 2 3"]; // of runs that share a colour
const HIGHER = "nats per token: higher is better";
const negate = (values) => values.map((value) => (isKnown(value) ? -value : NaN));

// A chart for each text that two runs or more were reported on: nats of different texts cannot be compared.
function drawBoundsOfTexts(room) {
  const trained = DATA.runs.filter(({ curves }) => curves.steps);
  const textOfRun = ({ text, corpus }) => text ?? corpus;
  const texts = [...new Set(trained.map(textOfRun))];
  return texts.flatMap((text) => {
    const runs = trained.filter((run) => textOfRun(run) === text);
    const lines = runs.map(({ name, curves }, index) => ({
      name,
      colour: `var(--run-${index % 6})`,
      dash: DASHES[Math.floor(index / 6) % DASHES.length],
      steps: curves.steps,
      values: negate(curves.bound.elbo),
    }));
    const title = `Bound of every run${texts.length > 1 ? ` of ${runs[0].corpus}` : ""}`;
    return lines.length > 1 ? [drawLines(title, HIGHER, lines, { decades: true, negated: true, room })] : [];
  });
}

function drawTraining(run, box) {
  const { steps, bound, kl = {}, active, truth, truth_of } = run.curves;
  const room = roomOf(box);
  const lines = Object.entries(bound).map(([name, values]) => ({ ...LINES[name], steps, values: negate(values) }));
  if (isKnown(truth)) {
    const coverage = truth_of ? `, ${truth_of[0]} of ${truth_of[1]} sentences` : "";
    const values = steps.map(() => -truth);
    lines.push({ name: `true log p${coverage}`, colour: "var(--ink)", dash: "1 3", thin: true, reference: true, steps, values });
  }
  const charts = [drawLines("Bound on validation", HIGHER, lines, { decades: true, negated: true, room })];
  charts.push(...drawBoundsOfTexts(room));
  const byType = (curves) => Object.entries(curves).map(([type, values]) => ({ ...ATTENTION_TYPES[type], steps, values }));
  const positive = byType(kl).filter((line) => line.values.some((value) => value > 0));
  if (positive.length) charts.push(drawLines("KL of each attention type", "nats per token", positive, { zero: true, room }));
  if (active)
    charts.push(drawLines("Expected number of active heads", "of each attention type", byType(active), { zero: true, room }));
  box.append(make("div", { class: "lines" }, charts));
}
