"""Times a training step: the library against the same network by hand, and against its rivals.

    python experiments/bench.py --recipe coda --rounds 5

A step is forward, loss, backward and clearing the gradients. All rows of a table take turns within
every round, the order rotated, on one batch and with one seed a round; the first rounds warm up. A
row's time is its median over rounds, and its ratio the median of its ratios to the hand-written
network within each round, with the interquartile range. The last column says how much of its time
the network's matrix products would need at the speed of one large product.

    no latents      the network without latents, deterministic blocks
    by hand         the same latent network in plain PyTorch
    guide, replay   the usual Pyro way: a guide that runs the network, then the model replayed
    ours            model and guide in one pass, Head_ELBO with closed-form KL
    ours, stock     the same under Pyro's own Trace_ELBO
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import latentheads.experiments.cli.beginning  # noqa: F401

import pyro
import torch

from latentheads.batch import SPECIALS
from latentheads.experiments.benchmarks.baselines import (
    BASELINE,
    PRECISIONS,
    RECIPES,
    ROWS,
    Runner,
    Setting,
    Size,
    make_batch,
)
from latentheads.experiments.benchmarks.command_line import Parser, positive, writable
from latentheads.experiments.benchmarks.racing import metadata, progress, quartiles, race


@dataclass(frozen=True)
class Plan:
    """How much is run.

    Attributes:
        size: Of the table's network.
        rounds: Timed rounds.
        warmup: Rounds before those.
        growth_rounds: Timed rounds at each point of the figure.
        lengths: Sentence lengths of the figure.
        heads: Numbers of heads of the figure.
        tokens: Tokens a batch of the figure keeps.
        side: Of the large square product that the peak is measured with.
    """

    size: Size = field(default_factory=Size)
    rounds: int = 20
    warmup: int = 3
    growth_rounds: int = 5
    lengths: tuple[int, ...] = (64, 128, 256, 512, 1024)
    heads: tuple[int, ...] = (4, 8, 16, 32)
    tokens: int = 1024
    side: int = 2048


FULL = Plan()
QUICK = Plan(Size(32, 64, 2, 4, 4, 8, 50), 3, 1, 2, (8, 16), (2, 4), 32, 128)


@dataclass(frozen=True)
class Result:
    """One row as measured; times in milliseconds, memory in bytes.

    The share of the peak is that of the hand-written step's matrix products, in the row's time,
    in the speed of one large square product measured beside it in the same precision.
    """

    recipe: str
    precision: str
    row: str
    ms: float
    ratio: float
    ratio_low: float
    ratio_high: float
    memory: int
    tokens_per_second: float
    share_of_peak: float
    size: Size


def measure(
    recipe: str,
    precision: str,
    size: Size,
    setting: Setting,
    rounds: int,
    warmup: int,
    side: int,
    bar: Any,
) -> list[Result]:
    """Times all rows of a recipe against each other."""
    batch = make_batch(size, setting)
    runners = []
    for name, make in ROWS.items():
        loss, parameters = make(recipe, size, setting, batch)
        runners.append(Runner(name, loss, parameters, setting, precision))
    race(runners, rounds, warmup, setting.seed, bar)
    base = next(runner for runner in runners if runner.name == BASELINE)
    ideal = base.operations() / peak(precision, setting, side)
    return [_result(recipe, size, runner, base.seconds, ideal) for runner in runners]


def peak(precision: str, setting: Setting, side: int) -> float:
    """Operations a second of a square matrix product, the best of ten."""
    kind = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    one, other = torch.ones(2, side, side, dtype=kind, device=setting.device)
    seconds = []
    for _ in range(10):
        setting.synchronise()
        start = time.perf_counter()
        one @ other
        setting.synchronise()
        seconds.append(time.perf_counter() - start)
    return 2 * side**3 / min(seconds)


def _result(
    recipe: str, size: Size, runner: Runner, yardstick: list[float], ideal: float
) -> Result:
    seconds = statistics.median(runner.seconds)
    low, ratio, high = quartiles([a / b for a, b in zip(runner.seconds, yardstick)])
    speed = size.batch * size.length / seconds
    return Result(
        recipe,
        runner.precision,
        runner.name,
        1e3 * seconds,
        ratio,
        low,
        high,
        runner.memory(),
        speed,
        ideal / seconds,
        size,
    )


def table(
    recipes: Sequence[str], precisions: Sequence[str], plan: Plan, setting: Setting
) -> list[Result]:
    """Measures every recipe in every precision."""
    cells = list(product(recipes, precisions))
    steps = len(cells) * len(ROWS) * (plan.rounds + plan.warmup)
    results = []
    with progress(steps) as bar:
        for recipe, precision in cells:
            bar.set_description(f"{recipe} {precision}")
            results += measure(
                recipe, precision, plan.size, setting, plan.rounds, plan.warmup, plan.side, bar
            )
    return results


def growing(plan: Plan) -> Iterator[tuple[str, Size]]:
    """The sizes of the figure: longer sentences, then more heads, in about constant tokens."""
    for length in plan.lengths:
        yield "length", replace(plan.size, length=length, batch=max(1, plan.tokens // length))
    short = max(2, int(plan.tokens**0.5))
    for heads in plan.heads:
        yield "heads", replace(plan.size, heads=heads, length=short, batch=plan.tokens // short)


def growth(recipe: str, precision: str, plan: Plan, setting: Setting) -> dict[str, list[Result]]:
    """Measures one recipe along length and along heads."""
    points = list(growing(plan))
    results: dict[str, list[Result]] = {"length": [], "heads": []}
    with progress(len(points) * len(ROWS) * (plan.growth_rounds + 1)) as bar:
        for axis, size in points:
            bar.set_description(f"growth, {axis} {getattr(size, axis)}")
            results[axis] += measure(
                recipe, precision, size, setting, plan.growth_rounds, 1, plan.side, bar
            )
    return results


def show(results: list[Result]) -> None:
    """Prints the table."""
    head = ("recipe", "precision", "row", "ms/step", "ratio", "quartiles", "MB", "tokens/s", "peak")
    form = "{:<12} {:<9} {:<14} {:>8} {:>6} {:>11} {:>7} {:>8} {:>6}"
    print(form.format(*head))
    for r in results:
        spread = f"{r.ratio_low:.2f}-{r.ratio_high:.2f}"
        cells = (f"{r.ms:.1f}", f"{r.ratio:.2f}", spread, f"{r.memory / 1e6:.0f}")
        ends = (f"{r.tokens_per_second:.0f}", f"{100 * r.share_of_peak:.0f} %")
        print(form.format(r.recipe, r.precision, r.row, *cells, *ends))


def draw(results: dict[str, list[Result]], path: Path) -> None:
    """Draws milliseconds and ratio against length and against heads."""
    from latentheads.plot import Picture, save  # takes long to load
    from latentheads.plot.canvas import WIDTH, add_legend, write_title
    from latentheads.plot.style import styled

    labels = {"length": "tokens a sentence", "heads": "heads a block"}
    first = results["length"][0]
    with styled():
        figure = Picture(WIDTH, 5.2)
        axes = figure.subplots(2, 2, sharex="col")
        for column, (axis, points) in enumerate(results.items()):
            _panel(axes[0][column], axis, "ms", points)
            _panel(axes[1][column], axis, "ratio", points)
            axes[1][column].set_xlabel(labels[axis])
        axes[0][0].set_ylabel("a step, milliseconds")
        axes[1][0].set_ylabel(f"ratio to {BASELINE}")
        add_legend(figure, columns=4)
        write_title(figure, f"A training step of {first.recipe}, {first.precision}")
    save(figure, path)


def _panel(axes: Any, axis: str, quantity: str, points: list[Result]) -> None:
    from matplotlib.ticker import NullLocator

    from latentheads.plot.canvas import scale_by_log
    from latentheads.plot.style import MARKERS

    for name, mark in zip(ROWS, MARKERS, strict=False):
        rows = [point for point in points if point.row == name]
        values = [getattr(row.size, axis) for row in rows]
        axes.plot(values, [getattr(row, quantity) for row in rows], marker=mark, label=name)
    axes.set_xscale("log", base=2)
    if quantity == "ms":
        scale_by_log(axes)
    else:
        axes.set_ylim(bottom=0)
    axes.set_xticks(values, [str(value) for value in values])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid()


def make_parser() -> Parser:
    """Builds the command line."""
    parser = Parser("bench.py", __doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="default: cpu")
    parser.add_argument(
        "--recipe",
        action="append",
        choices=RECIPES,
        help="may be repeated; default: coda, cascaded",
    )
    parser.add_argument(
        "--precision", action="append", choices=PRECISIONS, help="may be repeated; default: both"
    )
    parser.add_argument("--adam", action="store_true", help="a step also updates the weights")
    parser.add_argument("--quick", action="store_true", help="a tiny network and few rounds")
    parser.add_argument("--json", type=writable, metavar="FILE", help="write rows and metadata")
    parser.add_argument(
        "--figure", type=writable, metavar="FILE", help="measure growth with length and heads too"
    )
    parser.add_argument("--seed", type=positive, default=1, help="default: 1")
    parser.add_argument("--threads", type=positive, help="of the processor; default: PyTorch's")
    for name in ("rounds", "warmup"):
        text = f"default: {getattr(FULL, name)}"
        parser.add_argument(f"--{name}", type=positive, metavar="N", help=text)
    for name, value in asdict(FULL.size).items():
        parser.add_argument(f"--{name}", type=positive, metavar="N", help=f"default: {value}")
    return parser


def make_plan(options: argparse.Namespace) -> Plan:
    """The default or the quick plan with what was asked for."""
    plan = QUICK if options.quick else FULL
    sizes = {name: getattr(options, name) for name in asdict(plan.size)}
    size = replace(plan.size, **{name: value for name, value in sizes.items() if value})
    rounds, warmup = options.rounds or plan.rounds, options.warmup or plan.warmup
    return replace(plan, size=size, rounds=rounds, warmup=warmup)


def check(parser: Parser, options: argparse.Namespace, plan: Plan) -> None:
    """Refuses what cannot be run."""
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: PyTorch sees no CUDA device here")
    if plan.size.vocabulary <= len(SPECIALS):
        parser.error(f"--vocabulary must exceed the {len(SPECIALS)} special tokens")
    if plan.size.length < 2:
        parser.error("--length must be at least 2")
    try:
        _ = [size.network for _, size in growing(plan)] if options.figure else plan.size.network
    except ValueError as error:
        parser.error(str(error))


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the benchmark."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    plan = make_plan(options)
    check(parser, options, plan)
    torch.set_num_threads(options.threads or torch.get_num_threads())
    pyro.enable_validation(False)
    setting = Setting(options.device, options.seed, options.adam)
    facts = metadata(asdict(plan), setting)
    where = "{device}, {threads} threads, torch {torch}, pyro {pyro}".format(**facts)
    print(f"{where}\nMB: {facts['memory']}")
    report(options, plan, setting, facts)


def report(
    options: argparse.Namespace, plan: Plan, setting: Setting, facts: dict[str, Any]
) -> None:
    """Measures, prints and writes the files asked for."""
    recipes = options.recipe or ["coda", "cascaded"]
    precisions = options.precision or PRECISIONS
    results = table(recipes, precisions, plan, setting)
    show(results)
    written: dict[str, Any] = {"metadata": facts, "rows": [asdict(row) for row in results]}
    if options.figure:
        points = growth(recipes[-1], precisions[0], plan, setting)
        draw(points, options.figure)
        written["growth"] = {axis: [asdict(row) for row in rows] for axis, rows in points.items()}
    if options.json:
        options.json.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
