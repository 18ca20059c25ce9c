// The page. Its state is in its address, so that a link leads to the same view.
//
// #run=0&view=head&sentence=2&block=decoder.1.cross&head=3&row=4&draw=1&quantity=entropy&theme=dark
// view=all draws all views below each other, for printing; #walk draws every view of every run and
// records on <body> what was drawn (for tests).

const DEFAULTS = { run: 0, view: "bounds", sentence: 0, block: "", head: 0, row: null, draw: 0, quantity: "", theme: "" };
const state = { ...DEFAULTS };
const ALL = { key: "all", title: "Everything" };
const byId = (name) => document.getElementById(name);
const roomOf = (box) => Math.max(260, box.clientWidth);
const hasMaps = (run, name) => run.sentences.length > 0 && run.sentences[0][name].length > 0;

// A view is offered for runs that have data for it.
const VIEWS = [
  {
    key: "bounds",
    title: "Bounds",
    says: "Reported values on the test part, in nats per target token. Higher is better for log p(y | x) and its bounds, which lie below it.",
    offered: () => true,
    draw: drawBounds,
  },
  {
    key: "training",
    title: "Training",
    says: "The same values on validation during training, and the KL of each attention type.",
    offered: (run) => isFull(run.curves),
    draw: drawTraining,
  },
  {
    key: "heads",
    title: "All heads",
    says: "Every cell is a head, every row a layer, the uppermost on top; click a cell to open the head.",
    offered: (run) => isFull(run.grid?.values),
    draw: drawHeads,
  },
  {
    key: "head",
    title: "One head",
    says: "Attention weights: queries are rows, keys are columns. A latent head has a mean and a standard deviation over samples; point at a row, or select it with the arrow keys, to see its band.",
    offered: (run) => hasMaps(run, "maps"),
    draw: drawHead,
  },
  {
    key: "alignments",
    title: "Alignments",
    says: "Alignment of each target token: prior (before the token is known), guide (amortised posterior) and exact posterior.",
    offered: (run) => hasMaps(run, "alignments"),
    draw: drawAlignments,
  },
  {
    key: "pairs",
    title: "Disagreement",
    says: "Jensen-Shannon divergence between the weights of two heads of a block; 0 for equal weights.",
    offered: (run) => isFull(run.pairs),
    draw: drawPairs,
  },
  {
    key: "selection",
    title: "Selection",
    says: "Posterior probability that each head is active, and the selected heads.",
    offered: (run) => isFull(run.selection),
    draw: drawSelection,
  },
  {
    key: "calibration",
    title: "Calibration",
    says: "Accuracy of the most likely token at every position of the references, EOS excluded, by its probability.",
    offered: (run) => isFull(run.calibration),
    draw: drawCalibration,
  },
  {
    key: "sentences",
    title: "Sentences",
    says: "Sentences of the corpus with the run's output and its bound, in nats per token; k-hat tells whether there are enough samples.",
    offered: (run) => run.sentences.length > 0,
    draw: drawSentences,
  },
];

function readAddress() {
  const parameters = new URLSearchParams(location.hash.slice(1));
  for (const [name, initial] of Object.entries(DEFAULTS)) {
    const value = parameters.get(name);
    const isInteger = initial === 0 || initial === null;
    state[name] = value === null ? initial : isInteger ? Math.max(0, parseInt(value, 10) || 0) : value;
  }
  state.run = Math.min(state.run, DATA.runs.length - 1);
}

// Writes the state to the address; a frame of a notebook may not allow that.
function remember(change, how = "replaceState") {
  Object.assign(state, change);
  const changed = Object.entries(state).filter(([name, value]) => value !== DEFAULTS[name]);
  try {
    history[how](null, "", `#${new URLSearchParams(changed)}`);
  } catch {
    // the state stays in memory
  }
}

// Changes the state, with an entry in the browser's history.
function go(change) {
  remember(change, "pushState");
  return render();
}

const nextTheme = { "": "light", light: "dark", dark: "" };

function drawHeader(run) {
  const count = (number) => number?.toLocaleString("en");
  const facts = {
    recipe: run.recipe,
    corpus: run.corpus,
    seed: run.seed,
    steps: run.steps,
    parameters: count(run.parameters),
    torch: run.versions.torch,
  };
  const known = Object.entries(facts).filter(([, value]) => isKnown(value));
  const names = DATA.runs.map(({ name }) => name);
  const choose = (index) => go({ ...DEFAULTS, view: state.view, theme: state.theme, run: index });
  const theme = () => go({ theme: nextTheme[state.theme] ?? "" });
  const print = () => go({ view: ALL.key, theme: "light" }).then(() => window.print());
  const controls = [
    names.length > 1 ? makeSelect("Run", names, state.run, choose) : null,
    make("button", { onclick: theme }, `Theme: ${state.theme || "auto"}`),
    make("button", { onclick: print }, "Print"),
  ];
  const problems = Object.entries(run.missing).map(([name, why]) => `The report has no ${name}: ${why}`);
  Object.entries(run.left_out ?? {}).forEach(([name, why]) => problems.push(`This page has no ${name}: ${why}`));
  if (run.unread) problems.push(`The text could not be loaded: ${run.unread}`);
  byId("head").replaceChildren(
    make("p", { class: "soft brand" }, "latentheads: report of a run and its heads"),
    make("h1", {}, run.name),
    make(
      "ul",
      { class: "facts" },
      known.map(([name, value]) => make("li", {}, `${name} `, make("b", {}, value))),
    ),
    make("div", { class: "bar" }, controls),
    ...problems.map((words) => make("p", { class: "error" }, words)),
  );
}

function drawTabs(offered) {
  const views = [...offered, ALL];
  const tabs = views.map(({ key, title }) => {
    const selected = key === state.view;
    return make(
      "button",
      {
        role: "tab",
        "aria-selected": selected ? "true" : "false",
        tabindex: selected ? 0 : -1,
        onclick: () => go({ view: key }),
      },
      title,
    );
  });
  const selectedTab = () => byId("views").querySelector("[aria-selected=true]");
  byId("views").replaceChildren(...tabs);
  byId("views").scrollLeft = selectedTab().offsetLeft - 40;
  byId("views").onkeydown = (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const index = tabs.indexOf(document.activeElement);
    if (!move || index < 0) return;
    go({ view: views[(index + move + tabs.length) % tabs.length].key }).then(() => selectedTab().focus());
  };
}

function drawFoot(run) {
  const notes = [`Made by latentheads ${DATA.made} from ${run.path}.`];
  if (run.read) {
    const { part, unit, measured, draws } = run.read;
    notes.push(
      `Measures are of heads at their prior's location on ${measured} ${unit} of the ${part} part; KL and gap are from the run's report. Maps show ${draws} samples of each sentence.`,
    );
  }
  const number = run.sentences.length;
  if (run.read && number < DATA.asked)
    notes.push(`The page has ${number} of ${DATA.asked} sentences: there are no more, or it would be too large.`);
  byId("foot").textContent = notes.join(" ");
}

function settleState(run, offered) {
  if (state.view !== ALL.key && !offered.some((view) => view.key === state.view)) state.view = DEFAULTS.view;
  state.sentence = Math.max(0, Math.min(state.sentence, run.sentences.length - 1));
  const dark = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  document.documentElement.dataset.theme = state.theme in nextTheme && state.theme ? state.theme : dark;
}

let renders = 0;

async function render() {
  renders += 1;
  const current = renders;
  const run = DATA.runs[state.run];
  const offered = VIEWS.filter((view) => view.offered(run));
  delete document.body.dataset.ready;
  settleState(run, offered);
  drawHeader(run);
  drawTabs(offered);
  drawFoot(run);
  byId("main").replaceChildren();
  for (const view of offered.filter(({ key }) => [key, ALL.key].includes(state.view))) {
    const head = [make("h2", {}, view.title), make("p", { class: "says" }, view.says)];
    const box = make("section", { "data-view": view.key, "aria-label": view.title }, head);
    byId("main").append(box);
    await view.draw(run, box);
    if (current !== renders) return; // a newer render has started
  }
  document.body.dataset.ready = state.view;
}

async function walk() {
  const views = [];
  for (const run of DATA.runs.keys()) {
    await go({ ...DEFAULTS, run, view: ALL.key });
    for (const box of byId("main").children) {
      views.push({ run, ...box.dataset, drawn: box.querySelectorAll("svg, table, .cell, article").length });
    }
  }
  document.body.dataset.walked = JSON.stringify(views);
}

// Shows an error on the page.
function showError(words) {
  document.body.dataset.errors = `${document.body.dataset.errors ?? ""}${words}; `;
  byId("main").prepend(make("p", { class: "error" }, `Error: ${words}`));
}

let width = innerWidth;

function fitWidth() {
  if (width !== innerWidth) render();
  width = innerWidth;
}

addEventListener("error", (event) => showError(event.message));
addEventListener("unhandledrejection", (event) => showError(String(event.reason)));
document.addEventListener("securitypolicyviolation", (event) => showError(`refused: ${event.blockedURI}`));
addEventListener("hashchange", () => {
  readAddress();
  render();
});
addEventListener("resize", fitWidth);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => render());

readAddress();
if (location.hash === "#walk") walk();
else render();
