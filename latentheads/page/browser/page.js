// The page: what is shown stands in its address, so that a link can be mailed.
//
// #run=0&view=head&sentence=2&block=decoder.1.cross&head=3&row=4&draw=1&quantity=entropy&theme=dark
// view=all draws every view one below the other, as for printing; #walk draws every view of every
// run and notes on <body> what was drawn.

const PLAIN = { run: 0, view: "bounds", sentence: 0, block: "", head: 0, row: null, draw: 0, quantity: "", theme: "" };
const state = { ...PLAIN };
const byId = (name) => document.getElementById(name);
const roomOf = (box) => Math.max(260, box.clientWidth || document.body.clientWidth - 40);

function readAddress() {
  const said = new URLSearchParams(location.hash.slice(1));
  for (const name of Object.keys(PLAIN)) {
    const value = said.get(name), whole = typeof PLAIN[name] === "number" || name === "row";
    state[name] = value === null ? PLAIN[name] : whole ? Math.max(0, parseInt(value, 10) || 0) : value;
  }
  state.run = Math.min(state.run, DATA.runs.length - 1);
}

// What stands in the address; a frame of a notebook may not be allowed to have one.
function remember(change) {
  Object.assign(state, change);
  const said = Object.entries(state).filter(([name, value]) => value !== PLAIN[name]);
  try {
    history.replaceState(null, "", `#${new URLSearchParams(said)}`);
  } catch { /* the state stays in the page */ }
}

function go(change) {
  remember(change);
  return render();
}

function drawHeader(run) {
  const theme = { "": "auto", light: "light", dark: "dark" }, next = { "": "light", light: "dark", dark: "" };
  const facts = { recipe: run.recipe, corpus: run.corpus, seed: run.seed, updates: run.step.toLocaleString("en"), parameters: run.parameters?.toLocaleString("en"), finished: run.finished, torch: run.versions.torch };
  const runs = make("select", { onchange: (event) => go({ ...PLAIN, view: state.view, theme: state.theme, run: +event.target.value }) }, DATA.runs.map((each, place) => make("option", { value: place, selected: place === state.run }, each.name)));
  byId("head").replaceChildren(
    make("p", { class: "soft brand" }, "latentheads: what a run found, and what its heads do"), make("h1", {}, run.name),
    make("ul", { class: "facts" }, Object.entries(facts).filter(([, value]) => value !== null && value !== undefined).map(([name, value]) => make("li", {}, `${name} `, make("b", {}, value)))),
    make("div", { class: "bar" }, DATA.runs.length > 1 ? make("label", {}, "Run", runs) : null, make("button", { onclick: () => go({ theme: next[state.theme] }) }, `Theme: ${theme[state.theme] ?? "auto"}`), make("button", { onclick: () => go({ view: "all" }).then(() => window.print()) }, "Print")),
    ...Object.entries(run.missing).map(([name, why]) => make("p", { class: "error" }, `The report lacks ${name}: ${why}`)),
    ...(run.unread ? [make("p", { class: "error" }, `No sentence could be read: ${run.unread}`)] : []));
}

function drawTabs(offered) {
  const tabs = [...offered, { key: "all", title: "Everything" }].map(({ key, title }) => make("button", { role: "tab", "aria-selected": key === state.view, tabindex: key === state.view ? 0 : -1, onclick: () => go({ view: key }) }, title));
  byId("views").replaceChildren(...tabs);
  byId("views").onkeydown = (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key], at = tabs.indexOf(document.activeElement);
    if (move && at >= 0) go({ view: [...offered, { key: "all" }][(at + move + tabs.length) % tabs.length].key }).then(() => byId("views").querySelector("[aria-selected=true]").focus());
  };
  const chosen = tabs.find((tab) => tab.getAttribute("aria-selected") === "true");
  if (chosen) byId("views").scrollLeft = chosen.offsetLeft - 40;
}

function drawFoot(run) {
  const some = run.sentences.length < DATA.asked && !run.unread ? ` ${run.sentences.length} of ${DATA.asked} sentences stand in the page, so that it stays small.` : "";
  const read = run.read ? ` Heads are measured at their prior's location on ${run.read.measured} ${run.read.unit} of the ${run.read.part} part; shown ones are drawn ${run.read.draws} times.${some}` : "";
  byId("foot").textContent = `Made by latentheads ${DATA.made} from ${run.path}.${read}`;
}

let turn = 0;

async function render() {
  const mine = ++turn, run = DATA.runs[state.run], offered = VIEWS.filter((view) => view.offered(run)), main = byId("main");
  document.body.removeAttribute("data-ready");
  document.documentElement.dataset.theme = ["light", "dark"].includes(state.theme) ? state.theme : matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  if (state.view !== "all" && !offered.some((view) => view.key === state.view)) state.view = "bounds";
  state.sentence = Math.min(state.sentence, Math.max(0, run.sentences.length - 1));
  drawHeader(run);
  drawTabs(offered);
  drawFoot(run);
  main.replaceChildren();
  for (const view of offered.filter(({ key }) => state.view === "all" || key === state.view)) {
    const box = make("section", { "data-view": view.key, "aria-label": view.title }, make("h2", {}, view.title), make("p", { class: "says" }, view.says));
    main.append(box);
    await view.draw(run, box);
    if (mine !== turn) return box.remove();
  }
  document.body.dataset.ready = state.view;
}

async function walk() {
  const seen = [];
  for (let run = 0; run < DATA.runs.length; run += 1) {
    await go({ ...PLAIN, run, view: "all" });
    for (const box of byId("main").children) seen.push({ run, ...box.dataset, drawn: box.querySelectorAll("svg, table, .cell, article").length });
  }
  document.body.dataset.walked = JSON.stringify(seen);
}

// What goes wrong is said on the page.
function tellError(words) {
  document.body.dataset.errors = `${document.body.dataset.errors ?? ""}${words}\n`;
  byId("main").prepend(make("p", { class: "error" }, `This view could not be drawn: ${words}`));
}
addEventListener("error", (event) => tellError(event.message));
addEventListener("unhandledrejection", (event) => tellError(String(event.reason)));
document.addEventListener("securitypolicyviolation", (event) => tellError(`refused: ${event.blockedURI}`));
addEventListener("hashchange", () => { readAddress(); render(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);

readAddress();
if (location.hash === "#walk") walk();
else render();
