// The page: what is shown stands in its address, so that a link can be mailed.
//
// #run=0&view=head&sentence=2&block=decoder.1.cross&head=3&row=4&draw=1&quantity=entropy&theme=dark
// view=all draws every view one below the other, as for printing; #walk draws every view of every
// run, and notes on <body> what was drawn.

const PLAIN = { run: 0, view: "bounds", sentence: 0, block: "", head: 0, row: null, draw: 0, quantity: "", theme: "" };
const state = { ...PLAIN };
const ALL = { key: "all", title: "Everything" };
const byId = (name) => document.getElementById(name);
const roomOf = (box) => Math.max(260, box.clientWidth);
const hasMaps = (run, name) => run.sentences.length > 0 && run.sentences[0][name].length > 0;

// A view is offered for runs that have something to show in it.
const VIEWS = [
  {
    key: "bounds",
    title: "Bounds",
    says: "What each run reports on the test part, in nats a target token: higher is better. A true bound lies below the exact log p(y | x).",
    offered: () => true,
    draw: drawBounds,
  },
  {
    key: "training",
    title: "Training",
    says: "The same figures on validation while the run was trained, and what the posteriors of each chain pay.",
    offered: (run) => isFull(run.curves),
    draw: drawTraining,
  },
  {
    key: "heads",
    title: "All heads",
    says: "Every head is a cell, every row a layer, the uppermost above; a cell opens its head.",
    offered: (run) => isFull(run.grid?.values),
    draw: drawHeads,
  },
  {
    key: "head",
    title: "One head",
    says: "Where a head looks: each row reads the columns. The weights of a random head have a mean and a deviation; point at a row, or choose it with the arrow keys, to see its band.",
    offered: (run) => hasMaps(run, "maps"),
    draw: drawHead,
  },
  {
    key: "alignments",
    title: "Alignments",
    says: "Where each word of the target points: before it is known, as the guide believes, and exactly, by Bayes' rule.",
    offered: (run) => hasMaps(run, "alignments"),
    draw: drawAlignments,
  },
  {
    key: "pairs",
    title: "Disagreement",
    says: "How differently two heads of a block look: Jensen-Shannon divergence of their weights; 0 where they read the same.",
    offered: (run) => isFull(run.pairs),
    draw: drawPairs,
  },
  {
    key: "selection",
    title: "Selection",
    says: "How likely each head is to speak, as training left it, and which of them do.",
    offered: (run) => isFull(run.selection),
    draw: drawSelection,
  },
  {
    key: "calibration",
    title: "Calibration",
    says: "Whether what is said with probability .7 is right seven times of ten: the likeliest token at every place of the references, but for the ends of sentences.",
    offered: (run) => isFull(run.calibration),
    draw: drawCalibration,
  },
  {
    key: "sentences",
    title: "Sentences",
    says: "Sentences of the corpus with what the run writes and its bound, in nats a token; k-hat says whether the draws suffice.",
    offered: (run) => run.sentences.length > 0,
    draw: drawSentences,
  },
];

function readAddress() {
  const said = new URLSearchParams(location.hash.slice(1));
  for (const [name, plain] of Object.entries(PLAIN)) {
    const value = said.get(name);
    const whole = plain === 0 || plain === null;
    state[name] = value === null ? plain : whole ? Math.max(0, parseInt(value, 10) || 0) : value;
  }
  state.run = Math.min(state.run, DATA.runs.length - 1);
}

// Notes the state in the address; a frame of a notebook may not be allowed to have one.
function remember(change, how = "replaceState") {
  Object.assign(state, change);
  const said = Object.entries(state).filter(([name, value]) => value !== PLAIN[name]);
  try {
    history[how](null, "", `#${new URLSearchParams(said)}`);
  } catch {
    // it stays in the page
  }
}

// Goes somewhere else, and can be gone back from.
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
    updates: run.updates,
    parameters: count(run.parameters),
    torch: run.versions.torch,
  };
  const known = Object.entries(facts).filter(([, value]) => isKnown(value));
  const names = DATA.runs.map((each) => each.name);
  const choose = (place) => go({ ...PLAIN, view: state.view, theme: state.theme, run: place });
  const theme = () => go({ theme: nextTheme[state.theme] ?? "" });
  const print = () => go({ view: ALL.key, theme: "light" }).then(() => window.print());
  const controls = [
    names.length > 1 ? makeSelect("Run", names, state.run, choose) : null,
    make("button", { onclick: theme }, `Theme: ${state.theme || "auto"}`),
    make("button", { onclick: print }, "Print"),
  ];
  const lacks = Object.entries(run.missing).map(([name, why]) => `The report lacks ${name}: ${why}`);
  if (run.unread) lacks.push(`No sentence could be read: ${run.unread}`);
  byId("head").replaceChildren(
    make("p", { class: "soft brand" }, "latentheads: what a run found, and what its heads do"),
    make("h1", {}, run.name),
    make(
      "ul",
      { class: "facts" },
      known.map(([name, value]) => make("li", {}, `${name} `, make("b", {}, value))),
    ),
    make("div", { class: "bar" }, controls),
    ...lacks.map((words) => make("p", { class: "error" }, words)),
  );
}

function drawTabs(offered) {
  const views = [...offered, ALL];
  const tabs = views.map(({ key, title }) => {
    const chosen = key === state.view;
    return make(
      "button",
      {
        role: "tab",
        "aria-selected": chosen ? "true" : "false",
        tabindex: chosen ? 0 : -1,
        onclick: () => go({ view: key }),
      },
      title,
    );
  });
  const chosen = () => byId("views").querySelector("[aria-selected=true]");
  byId("views").replaceChildren(...tabs);
  byId("views").scrollLeft = chosen().offsetLeft - 40;
  byId("views").onkeydown = (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const at = tabs.indexOf(document.activeElement);
    if (!move || at < 0) return;
    go({ view: views[(at + move + tabs.length) % tabs.length].key }).then(() => chosen().focus());
  };
}

function drawFoot(run) {
  const said = [`Made by latentheads ${DATA.made} from ${run.path}.`];
  if (run.read) {
    const { part, unit, measured, draws } = run.read;
    said.push(
      `Heads are measured at their prior's location on ${measured} ${unit} of the ${part} part, but for KL and gap, which the run reported; shown ones are drawn ${draws} times.`,
    );
  }
  const number = run.sentences.length;
  if (run.read && number < DATA.asked)
    said.push(`${number} of ${DATA.asked} sentences stand in the page: there are no more, or it would be too large.`);
  byId("foot").textContent = said.join(" ");
}

function settleState(run, offered) {
  if (state.view !== ALL.key && !offered.some((view) => view.key === state.view)) state.view = PLAIN.view;
  state.sentence = Math.max(0, Math.min(state.sentence, run.sentences.length - 1));
  const dark = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  document.documentElement.dataset.theme = state.theme in nextTheme && state.theme ? state.theme : dark;
}

let turn = 0;

async function render() {
  turn += 1;
  const mine = turn;
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
    if (mine !== turn) return; // the reader has gone on
  }
  document.body.dataset.ready = state.view;
}

async function walk() {
  const seen = [];
  for (const run of DATA.runs.keys()) {
    await go({ ...PLAIN, run, view: ALL.key });
    for (const box of byId("main").children) {
      seen.push({ run, ...box.dataset, drawn: box.querySelectorAll("svg, table, .cell, article").length });
    }
  }
  document.body.dataset.walked = JSON.stringify(seen);
}

// What goes wrong is said on the page.
function tellError(words) {
  document.body.dataset.errors = `${document.body.dataset.errors ?? ""}${words}; `;
  byId("main").prepend(make("p", { class: "error" }, `This could not be drawn: ${words}`));
}

let width = innerWidth;

function fitWidth() {
  if (width !== innerWidth) render();
  width = innerWidth;
}

addEventListener("error", (event) => tellError(event.message));
addEventListener("unhandledrejection", (event) => tellError(String(event.reason)));
document.addEventListener("securitypolicyviolation", (event) => tellError(`refused: ${event.blockedURI}`));
addEventListener("hashchange", () => {
  readAddress();
  render();
});
addEventListener("resize", fitWidth);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => render());

readAddress();
if (location.hash === "#walk") walk();
else render();
