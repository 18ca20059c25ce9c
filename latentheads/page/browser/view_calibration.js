// How often what is said with some probability is right.

function drawCalibration(run, box) {
  const { bins, error, excess } = run.calibration;
  const column = (name) => bins.map((bin) => bin[name]);
  const right = { name: "share that is right", colour: "var(--exact)", steps: column("said"), values: column("right") };
  const even = { name: "as often as it is said", colour: "var(--ink)", dash: "1 3", thin: true };
  const lines = [right, { ...even, steps: [0, 1], values: [0, 1] }];
  const how = excess > 0 ? "too sure" : "not sure enough";
  const note = `calibration error ${write(error)}; on average ${write(Math.abs(excess))} ${how}`;
  const chart = drawLines("Right, by the probability of the likeliest token", note, lines, {
    zero: true,
    along: "probability",
    room: roomOf(box),
  });
  const rows = bins.map((bin) => [bin.tokens.toLocaleString("en"), write(bin.said), write(bin.right)]);
  box.append(make("div", { class: "lines" }, chart), makeTable(["tokens", "said", "right"], rows));
}
