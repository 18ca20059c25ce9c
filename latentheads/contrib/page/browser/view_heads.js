// Views of all heads, of pairs of heads, and of the selection.

const ATTENTION_TYPES = {
  "encoder-self": { name: "Encoder, self-attention", colour: "var(--run-0)" },
  "decoder-self": { name: "Decoder, self-attention", colour: "var(--run-1)" },
  "decoder-cross": { name: "Decoder, cross-attention", colour: "var(--run-2)" },
  "decoder-alignment": { name: "Heads above the decoder", colour: "var(--run-3)" },
  selection: { name: "Selection of heads", colour: "var(--run-4)" },
};
const layerOf = (block) => block.split(".")[1];
const titleOf = (block) => `${ATTENTION_TYPES[attentionTypeOf(block)].name}, layer ${layerOf(block)}`;

// Each measure: its name, unit, colours and explanation.
const QUANTITIES = {
  kl: [
    "KL",
    "nats per token",
    "deviation",
    "KL from the guide to the prior, from the run's report on the whole test part; one value for all heads of a block.",
  ],
  gap: [
    "Gap",
    "nats per token",
    "deviation",
    "KL from the guide to the exact posterior, from the run's report on the whole test part; one value for all heads of a block.",
  ],
  entropy: ["Entropy", "nats", "mean", "Entropy of the attention weights: 0 for a single position."],
  confidence: [
    "Confidence",
    "mean largest weight",
    "mean",
    "The largest attention weight, averaged over queries.",
  ],
  disagreement: [
    "Disagreement",
    "nats per query",
    "apart",
    "Jensen-Shannon divergence from the other heads of the block, at most 0.69.",
  ],
  importance: [
    "Importance",
    "norm 1 per block",
    "deviation",
    "Gradient of the loss by a mask on the head's output.",
  ],
  active: ["Active", "probability", "apart", "The guide's probability that the head is active: that its gate is open."],
};
const PER_BLOCK = ["kl", "gap"];
const SHARES = ["confidence", "active"];

// A note on what is numbered where tasks select heads from candidates.
function noteSlots(run, box, place) {
  if (!["subset", "group", "static"].includes(run.options["selection.strategy.class"])) return;
  const words = `Heads are selected from candidates: a ${place} is a slot, which each task may fill with another candidate.`;
  box.append(note(words));
}

function drawHeads(run, box) {
  const { blocks, values } = run.grid;
  const names = Object.keys(QUANTITIES).filter((name) => values[name]);
  const first = names.find((name) => !PER_BLOCK.includes(name)) ?? names[0];
  const quantity = names.includes(state.quantity) ? state.quantity : first;
  const [title, unit, colours, words] = QUANTITIES[quantity];
  const cells = Object.values(values[quantity]).flat().filter(isKnown);
  const limit = SHARES.includes(quantity) ? 1 : Math.max(...cells, 1e-9);
  const ramp = rampOf(colours);
  const choose = (name) =>
    make("button", { "aria-pressed": name === quantity, onclick: () => go({ quantity: name }) }, QUANTITIES[name][0]);
  box.append(make("div", { class: "bar choices", role: "group", "aria-label": "Colour" }, names.map(choose)));
  box.append(make("p", {}, make("b", {}, title), `, ${unit}. ${words}`), makeScale(ramp, write(limit, 2), ""));
  if (PER_BLOCK.includes(quantity) && isKnown(run.other)) box.append(note(`This value is ${run.other}.`));
  noteSlots(run, box, "cell");
  const charts = make("div", { class: "charts" });
  for (const type of new Set(blocks.map((block) => block.chain))) {
    const measured = blocks.filter((block) => block.chain === type && values[quantity][block.name]).reverse();
    if (measured.length) charts.append(drawBlocks(run, measured, quantity, { ramp, limit }));
  }
  box.append(charts);
  box.dataset.cells = box.querySelectorAll(".cell").length;
}

// One row per layer, one cell per head; the value of a whole block is one wide cell.
function drawBlocks(run, blocks, quantity, { ramp, limit }) {
  const columns = Math.max(...blocks.map((block) => block.heads));
  const name = ATTENTION_TYPES[blocks[0].chain].name;
  const title = blocks.some((block) => block.attends) ? name : name.replace("self-attention", "n-grams");
  const digits = PER_BLOCK.includes(quantity) ? 4 : 2;
  const rows = blocks.map((block) => {
    const values = run.grid.values[quantity][block.name];
    const whole = values.length < block.heads;
    const hasMap = run.sentences[0]?.maps.some((maps) => maps.name === block.name);
    const cells = values.map((value, head) => {
      const onclick = hasMap ? () => go({ view: "head", block: block.name, head, row: null }) : undefined;
      const words = `${block.name}, ${whole ? "all heads" : `head ${head}`}`;
      return makeCell(value, ramp, limit, words, { digits, span: whole ? block.heads : 1, onclick });
    });
    return [`layer ${block.layer}`, cells];
  });
  const above = Array.from({ length: columns }, (_, head) => `head ${head}`);
  return make("div", {}, make("h3", {}, title), makeGrid(columns, above, rows));
}

// A square matrix with labels.
function drawMatrix(values, names, ramp, limit) {
  const digits = values.length > 8 ? null : 2;
  const rows = values.map((row, first) => {
    const cells = row.map((value, second) =>
      makeCell(value, ramp, limit, `${names[first]}, ${names[second]}`, { digits, more: "small" }),
    );
    return [names[first], cells];
  });
  return makeGrid(names.length, names, rows);
}

function drawPairs(run, box) {
  const ramp = rampOf("apart");
  const limit = Math.max(1e-9, ...Object.values(run.pairs).flat(2).filter(isKnown));
  const blocks = Object.keys(run.pairs);
  const draw = (block) => {
    const names = run.pairs[block].map((_, head) => String(head));
    const square = drawMatrix(run.pairs[block], names, ramp, limit);
    return make("div", {}, make("h4", {}, `layer ${layerOf(block)}`), square);
  };
  box.append(makeScale(ramp, write(limit, 2), "nats per query, at most 0.69"));
  noteSlots(run, box, "row or column");
  const types = new Set(blocks.map(attentionTypeOf));
  for (const type of types) {
    const charts = blocks.filter((block) => attentionTypeOf(block) === type).map(draw);
    box.append(make("h3", {}, ATTENTION_TYPES[type].name), make("div", { class: "charts" }, charts));
  }
  Object.assign(box.dataset, { blocks: blocks.length, chains: types.size });
}

function drawSelection(run, box) {
  const ramp = rampOf("mean");
  const { gates } = run.latents;
  if (gates)
    box.append(
      make("p", {}, `${gates.open} of ${gates.gated} gates are open; ${write(gates.expected, 1)} are expected to be.`),
    );
  box.append(make("div", { class: "keys" }, make("span", {}, make("i", { class: "active" }), "selected")));
  box.append(makeScale(ramp, "1", "the guide's probability that a head is active"));
  for (const [type, selection] of Object.entries(run.selection)) {
    const charts = selection.tasks.map((task, index) => drawProbabilities(selection, task, index, ramp));
    if (selection.tasks.length > 1) {
      const names = selection.tasks.map((task) => shorten(task, 9));
      const words = `Heads in common (${write(selection.by_chance, 2)} by chance)`;
      charts.push(make("div", {}, make("h4", {}, words), drawMatrix(selection.sharing, names, rampOf("apart"), 1)));
    }
    box.append(make("h3", {}, ATTENTION_TYPES[type].name), make("div", { class: "charts" }, charts));
  }
  box.dataset.cells = box.querySelectorAll(".cell").length;
}

// The candidate heads of a task, one row per layer.
function drawProbabilities(selection, task, index, ramp) {
  const blocks = Object.keys(selection.probabilities).reverse();
  const number = Math.max(...blocks.map((block) => selection.probabilities[block][index].length));
  const rows = blocks.map((block) => {
    const cells = selection.probabilities[block][index].map((probability, head) => {
      const more = selection.chosen[block][index][head] ? "small chosen" : "small";
      return makeCell(probability, ramp, 1, `${block}, head ${head}`, { digits: number > 12 ? null : 2, more });
    });
    return [`layer ${layerOf(block)}`, cells];
  });
  return make("div", {}, task ? make("h4", {}, task) : null, makeGrid(number, [], rows));
}
