// Line charts over optimiser steps, or over another quantity.

const LEFT = 48;
const BELOW = 26;
const HIGH = 240;

// Round numbers between two ends; over decades 1, 2, 5, 10 ...
function ticksOf(low, high, decades) {
  if (decades) {
    const powers = Array.from({ length: 40 }, (_, index) => 10 ** (index - 20));
    return powers.flatMap((power) => [power, 2 * power, 5 * power]).filter((tick) => tick >= low && tick <= high);
  }
  const rough = (high - low) / 5 || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((times) => times * power >= rough);
  const ticks = Array.from({ length: 12 }, (_, index) => (Math.ceil(low / step) + index) * step);
  return ticks.filter((tick) => tick <= high + step / 1e6);
}

// A tick as it is, without rounding errors of its computation.
const EXACT = { maximumSignificantDigits: 12, signDisplay: "negative" };
const nameTick = (tick) => tick.toLocaleString("en", EXACT).replace("-", "−");

// The values that set the limits of the y axis: without a reference line that would leave others less than half of it.
function shownValues(lines, decades) {
  const isShown = (value) => Number.isFinite(value) && (!decades || value > 0);
  const valuesOf = (some) => some.flatMap((line) => line.values).filter(isShown);
  const height = (values) => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return decades ? Math.log(high / low) : high - low;
  };
  const [all, own] = [valuesOf(lines), valuesOf(lines.filter((line) => !line.reference))];
  return own.length && 2 * height(own) < height(all) ? own : all;
}

// The y scale of some lines: the position of a value, and the ticks. Negated values are drawn upside down, with their
// original sign, so that higher is better.
function scaleOf(lines, { decades, zero, negated }) {
  const finite = shownValues(lines, decades);
  const low = zero ? 0 : Math.min(...finite);
  let high = Math.max(...finite);
  if (low === high) high = low + (Math.abs(low) || 1) / 10;
  const logs = decades && high > 4 * low;
  const transform = logs ? Math.log10 : (value) => value;
  const share = (value) => (transform(value) - transform(low)) / (transform(high) - transform(low));
  const y = (value) => 10 + (HIGH - 10 - BELOW) * (negated ? share(value) : 1 - share(value));
  const shows = (value) => Number.isFinite(value) && (!logs || value > 0);
  const isBeyond = (line) => Boolean(line.reference) && line.values.every((value) => value < low || value > high);
  return { y, ticks: ticksOf(low, high, logs), shows, isBeyond };
}

function drawLine(line, x, { y, shows }, sign) {
  const path = line.values.map((value, index) => {
    if (!shows(value)) return ""; // a gap: what is not known is not drawn as if it lay between
    const move = index && shows(line.values[index - 1]) ? "L" : "M";
    return `${move}${x(line.steps[index]).toFixed(1)} ${y(value).toFixed(1)}`;
  });
  const points = line.values.map((value, index) => [x(line.steps[index]), value]).filter(([, value]) => shows(value));
  const width = line.thin ? 1.2 : 2.2;
  const curve = make("path", {
    d: path.join(""),
    fill: "none",
    stroke: line.colour,
    "stroke-width": width,
    "stroke-dasharray": line.dash,
  });
  if (points.length > 40 || line.thin) return [curve];
  const dots = points.map(([left, value]) =>
    make(
      "circle",
      { cx: left, cy: y(value), r: 2.6, fill: line.colour },
      make("title", {}, `${line.name}: ${write(sign * value, 4)}`),
    ),
  );
  return [curve, ...dots];
}

// A chart of lines, each { name, colour, steps, values }; values may be missing.
function drawLines(title, note, lines, { decades = false, zero = false, negated = false, xlabel = "optimiser steps", room }) {
  const width = Math.min(room, 600);
  const steps = lines.flatMap((line) => line.steps);
  const [first, last] = [Math.min(...steps), Math.max(...steps)];
  const x = (step) => LEFT + ((width - LEFT - 12) * (step - first)) / (last - first || 1);
  const scale = scaleOf(lines, { decades, zero, negated });
  const sign = negated ? -1 : 1;
  const yticks = scale.ticks.map((tick) => [
    lineOf(LEFT, scale.y(tick), width - 12, scale.y(tick), "var(--line)"),
    textOf(LEFT - 6, scale.y(tick) + 4, nameTick(sign * tick)),
  ]);
  const centred = { "text-anchor": "middle" };
  const isShown = (tick) => last <= 1 || Number.isInteger(tick); // there is no half step
  const xticks = ticksOf(first, last, false).filter(isShown).map((tick) =>
    textOf(x(tick), HIGH - 8, nameTick(tick), centred),
  );
  xticks.push(textOf((LEFT + width - 12) / 2, HIGH + 12, xlabel, centred));
  const curves = lines.filter((line) => !scale.isBeyond(line)).map((line) => drawLine(line, x, scale, sign));
  const size = { width, height: HIGH + 18, viewBox: `0 0 ${width} ${HIGH + 18}` };
  const svg = make("svg", { ...size, role: "img", "aria-label": title }, yticks.flat(), xticks, curves.flat());
  const nameOf = (line) =>
    scale.isBeyond(line) ? `${line.name}: ${write(sign * line.values[0], 2)}, beyond the axis` : line.name;
  const keys = lines.map((line) => stroke(line.colour, nameOf(line), line.dash));
  const caption = make("figcaption", {}, title, " ", make("small", {}, note));
  return make("figure", { class: "chart" }, caption, svg, make("div", { class: "keys" }, keys));
}
