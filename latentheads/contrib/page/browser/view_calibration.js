// Accuracy of tokens by predicted probability.

function drawCalibration(run, box) {
  const { bins, error, excess } = run.calibration;
  const column = (name) => bins.map((bin) => bin[name]);
  const accuracy = { name: "accuracy", colour: "var(--exact)", steps: column("said"), values: column("right") };
  const diagonal = { name: "perfect calibration", colour: "var(--ink)", dash: "1 3", thin: true };
  const lines = [accuracy, { ...diagonal, steps: [0, 1], values: [0, 1] }];
  const direction = excess > 0 ? "overconfident" : "underconfident";
  const note = `calibration error ${write(error)}; on average ${write(Math.abs(excess))} ${direction}`;
  const chart = drawLines("Accuracy by probability of the most likely token", note, lines, {
    zero: true,
    xlabel: "probability",
    room: roomOf(box),
  });
  const rows = bins.map((bin) => [bin.tokens.toLocaleString("en"), write(bin.said), write(bin.right)]);
  box.append(make("div", { class: "lines" }, chart), makeTable(["tokens", "probability", "accuracy"], rows));
}
