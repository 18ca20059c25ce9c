// Every head as a cell, and every two heads.

const CHAINS = {
  "encoder-self": { name: "Encoder, self-attention", colour: "var(--run-0)" },
  "decoder-self": { name: "Decoder, self-attention", colour: "var(--run-1)" },
  "decoder-cross": { name: "Decoder, reading the source", colour: "var(--run-2)" },
  "decoder-alignment": { name: "Alignments", colour: "var(--run-3)" },
  selection: { name: "Which heads speak", colour: "var(--run-4)" },
};
const layerOf = (block) => block.split(".")[1];
const titleOf = (block) => `${CHAINS[chainOf(block)].name}, layer ${layerOf(block)}`;

// Each quantity: its name, its unit, its colours, and what it says.
const QUANTITIES = {
  kl: [
    "KL",
    "nats a token",
    "deviation",
    "What the posterior pays to differ from its prior, as the run reported it of the whole test part, under its guide; one figure for all heads of a block.",
  ],
  gap: [
    "Gap",
    "nats a token",
    "deviation",
    "What a guide's alignments lack of the exact posterior, as the run reported it of the whole test part; one figure for all heads of a block.",
  ],
  entropy: ["Entropy", "nats", "mean", "How widely a head looks: 0 where it reads one position alone."],
  confidence: [
    "Confidence",
    "mean largest weight",
    "mean",
    "How much of its weight a head gives to the position that it reads most.",
  ],
  disagreement: [
    "Disagreement",
    "nats a query",
    "apart",
    "Jensen-Shannon divergence from the other heads of the block, at most 0.69: how different what it reads is.",
  ],
  importance: [
    "Importance",
    "of length 1 in a block",
    "deviation",
    "How much the loss would feel it if the head were switched off.",
  ],
  speaks: ["Speaks", "probability", "apart", "The posterior probability that the head speaks: that its gate is open."],
};
const OF_BLOCKS = ["kl", "gap"];
const SHARES = ["confidence", "speaks"];

function drawHeads(run, box) {
  const { blocks, values } = run.grid;
  const names = Object.keys(QUANTITIES).filter((name) => values[name]);
  const first = names.find((name) => !OF_BLOCKS.includes(name)) ?? names[0];
  const quantity = names.includes(state.quantity) ? state.quantity : first;
  const [title, unit, colours, words] = QUANTITIES[quantity];
  const known = Object.values(values[quantity]).flat().filter(isKnown);
  const top = SHARES.includes(quantity) ? 1 : Math.max(...known, 1e-9);
  const ramp = rampOf(colours);
  const choose = (name) =>
    make("button", { "aria-pressed": name === quantity, onclick: () => go({ quantity: name }) }, QUANTITIES[name][0]);
  box.append(make("div", { class: "bar choices", role: "group", "aria-label": "Colour" }, names.map(choose)));
  box.append(make("p", {}, make("b", {}, title), `, ${unit}. ${words}`), makeScale(ramp, write(top, 2), ""));
  if (OF_BLOCKS.includes(quantity) && isKnown(run.other)) box.append(note(`This figure is ${run.other}.`));
  if (["subset", "group", "static"].includes(run.options.select)) {
    const words =
      "Heads are chosen among candidates: a cell is a place, which each task may fill with another of them.";
    box.append(note(words));
  }
  const charts = make("div", { class: "charts" });
  for (const chain of new Set(blocks.map((block) => block.chain))) {
    const own = blocks.filter((block) => block.chain === chain && values[quantity][block.name]).reverse();
    if (own.length) charts.append(drawChain(run, own, quantity, { ramp, top }));
  }
  box.append(charts);
  box.dataset.cells = box.querySelectorAll(".cell").length;
}

// A row a layer, a cell a head; a figure of a whole block is as wide as its heads.
function drawChain(run, blocks, quantity, { ramp, top }) {
  const wide = Math.max(...blocks.map((block) => block.heads));
  const name = CHAINS[blocks[0].chain].name;
  const title = blocks.some((block) => block.attends) ? name : name.replace("self-attention", "n-grams");
  const digits = OF_BLOCKS.includes(quantity) ? 4 : 2;
  const rows = blocks.map((block) => {
    const values = run.grid.values[quantity][block.name];
    const whole = values.length < block.heads;
    const shown = run.sentences[0]?.maps.some((maps) => maps.name === block.name);
    const cells = values.map((value, head) => {
      const onclick = shown ? () => go({ view: "head", block: block.name, head, row: null }) : undefined;
      const words = `${block.name}, ${whole ? "all heads" : `head ${head}`}`;
      return makeCell(value, ramp, top, words, { digits, span: whole ? block.heads : 1, onclick });
    });
    return [`layer ${block.layer}`, cells];
  });
  const above = Array.from({ length: wide }, (_, head) => `head ${head}`);
  return make("div", {}, make("h3", {}, title), makeGrid(wide, above, rows));
}

// A square of numbers between the things that it names.
function drawMatrix(values, names, ramp, top) {
  const digits = values.length > 8 ? null : 2;
  const rows = values.map((row, first) => {
    const cells = row.map((value, second) =>
      makeCell(value, ramp, top, `${names[first]}, ${names[second]}`, { digits, more: "small" }),
    );
    return [names[first], cells];
  });
  return makeGrid(names.length, names, rows);
}

function drawPairs(run, box) {
  const ramp = rampOf("apart");
  const top = Math.max(1e-9, ...Object.values(run.pairs).flat(2).filter(isKnown));
  const blocks = Object.keys(run.pairs);
  const draw = (block) => {
    const names = run.pairs[block].map((_, head) => String(head));
    const square = drawMatrix(run.pairs[block], names, ramp, top);
    return make("div", {}, make("h4", {}, `layer ${layerOf(block)}`), square);
  };
  box.append(makeScale(ramp, write(top, 2), "nats a query, of at most 0.69"));
  const chains = new Set(blocks.map(chainOf));
  for (const chain of chains) {
    const charts = blocks.filter((block) => chainOf(block) === chain).map(draw);
    box.append(make("h3", {}, CHAINS[chain].name), make("div", { class: "charts" }, charts));
  }
  Object.assign(box.dataset, { blocks: blocks.length, chains: chains.size });
}

function drawSelection(run, box) {
  const ramp = rampOf("mean");
  const { gates } = run;
  if (gates)
    box.append(
      make("p", {}, `${gates.open} of ${gates.gated} gates are open; ${write(gates.expected, 1)} are expected to be.`),
    );
  box.append(make("div", { class: "keys" }, make("span", {}, make("i", { class: "speaks" }), "speaks")));
  box.append(makeScale(ramp, "1", "posterior probability that a head speaks"));
  for (const [chain, found] of Object.entries(run.selection)) {
    const charts = found.tasks.map((task, place) => drawChances(found, task, place, ramp));
    if (found.tasks.length > 1) {
      const names = found.tasks.map((task) => shorten(task, 9));
      const words = `Heads in common (${write(found.by_chance, 2)} by chance)`;
      charts.push(make("div", {}, make("h4", {}, words), drawMatrix(found.sharing, names, rampOf("apart"), 1)));
    }
    box.append(make("h3", {}, CHAINS[chain].name), make("div", { class: "charts" }, charts));
  }
  box.dataset.cells = box.querySelectorAll(".cell").length;
}

// The heads that a task may speak with, a row a layer.
function drawChances(found, task, place, ramp) {
  const blocks = Object.keys(found.probabilities).reverse();
  const number = Math.max(...blocks.map((block) => found.probabilities[block][place].length));
  const rows = blocks.map((block) => {
    const cells = found.probabilities[block][place].map((chance, head) => {
      const more = found.chosen[block][place][head] ? "small chosen" : "small";
      return makeCell(chance, ramp, 1, `${block}, head ${head}`, { digits: number > 12 ? null : 2, more });
    });
    return [`layer ${layerOf(block)}`, cells];
  });
  return make("div", {}, task ? make("h4", {}, task) : null, makeGrid(number, [], rows));
}
