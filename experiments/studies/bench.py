"""Times a training step: the library against the same network by hand, and against its rivals.

    python experiments/studies/bench.py --recipe coda --rounds 5

A step is forward, loss, backward and clearing the gradients. All rows of a table take turns within
every round, the order rotated, on one batch and with one seed a round; the first rounds warm up. A
row's time is its median over rounds, and its ratio the median of its ratios to the hand-written
network within each round, with the interquartile range. The last column says how much of its time
the network's matrix products would need at the speed of one large product.

    no latents      the network without latents, deterministic blocks
    by hand         the same latent network in plain PyTorch
    same kernels    by hand with the library's dropout, softmax and output layer: what is left
                    between this row and ours is the cost of Pyro and of the library's Python
    guide, replay   the usual Pyro way: a guide that runs the network, then the model replayed
    ours            model and guide in one pass, Head_ELBO with closed-form KL
    ours, stock     the same under Pyro's own Trace_ELBO
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from pathlib import Path
from typing import Any

import latentheads.experiments.cli.startup  # noqa: F401

import torch

from latentheads.experiments.cli.parser import Parser, writable
from latentheads.experiments.studies.benchmarks import command_line
from latentheads.experiments.studies.benchmarks.baselines import (
    BASELINE,
    PRECISIONS,
    RECIPES,
    ROWS,
    Runner,
    Setting,
    Size,
    make_batch,
)
from latentheads.experiments.studies.benchmarks.command_line import (
    SIZES,
    begin,
    bench_parser,
    check_size,
    where,
    write,
)
from latentheads.experiments.studies.benchmarks.growth import draw_rows
from latentheads.experiments.studies.benchmarks.racing import progress, quartiles, race

NUMBERS = ("rounds", "warmup", *SIZES)
"""Numbers of the plan that have an option."""


@dataclass(frozen=True)
class Plan(command_line.Plan):
    """How much is run: a table, and a figure where one is asked for.

    Attributes:
        growth_rounds: Timed rounds at each point of the figure.
        lengths: Sentence lengths of the figure.
        heads: Numbers of heads of the figure.
        tokens: Tokens a batch of the figure keeps.
        side: Of the large square product that the peak is measured with.
    """

    growth_rounds: int = 5
    lengths: tuple[int, ...] = (64, 128, 256, 512, 1024)
    heads: tuple[int, ...] = (4, 8, 16, 32)
    tokens: int = 1024
    side: int = 2048


FULL = Plan(Size(), 20, 3)
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


def make_rows(recipe: str, precision: str, size: Size, setting: Setting) -> list[Runner]:
    """All rows of a recipe, on one batch."""
    batch = make_batch(size, setting)
    made = ((name, make(recipe, size, setting, batch)) for name, make in ROWS.items())
    return [Runner(name, *parts, setting, precision) for name, parts in made]


def measure(cells: Sequence[tuple[str, str, Size]], plan: Plan, setting: Setting) -> list[Result]:
    """Times the rows of every recipe, precision and size against each other."""
    results = []
    with progress(len(cells) * len(ROWS) * (plan.rounds + plan.warmup)) as bar:
        for recipe, precision, size in cells:
            bar.set_description(f"{recipe} {precision}, {size.heads} heads, {size.length} tokens")
            runners = make_rows(recipe, precision, size, setting)
            race(runners, plan.rounds, plan.warmup, setting.seed, bar)
            base = next(runner for runner in runners if runner.name == BASELINE)
            ideal = base.operations() / peak(precision, setting, plan.side)
            results += [_result(recipe, size, runner, base.seconds, ideal) for runner in runners]
    return results


def peak(precision: str, setting: Setting, side: int) -> float:
    """Operations a second of a square matrix product, the best of ten."""
    kind = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    one, other = torch.ones(2, side, side, dtype=kind, device=setting.device)
    seconds = min(setting.time(lambda: one @ other) for _ in range(10))
    return 2 * side**3 / max(seconds, 1e-9)  # the clock may stand still for a small product


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


def growing(plan: Plan) -> dict[str, list[Size]]:
    """The sizes of the figure: longer sentences, then more heads, in about constant tokens."""
    tokens, short = plan.tokens, max(2, int(plan.tokens**0.5))
    brief = replace(plan.size, length=short, batch=tokens // short)
    return {
        "length": [replace(brief, length=n, batch=max(1, tokens // n)) for n in plan.lengths],
        "heads": [replace(brief, heads=heads) for heads in plan.heads],
    }


def show(results: list[Result]) -> None:
    """Prints the table."""
    head = ("recipe", "precision", "row", "ms/step", "ratio", "quartiles", "MB", "tokens/s", "peak")
    form = "{:<12} {:<9} {:<21} {:>8} {:>6} {:>11} {:>7} {:>8} {:>6}"
    print(form.format(*head))
    for r in results:
        spread = f"{r.ratio_low:.2f}-{r.ratio_high:.2f}"
        cells = (f"{r.ms:.1f}", f"{r.ratio:.2f}", spread, f"{r.memory / 1e6:.0f}")
        ends = (f"{r.tokens_per_second:.0f}", f"{100 * r.share_of_peak:.0f} %")
        print(form.format(r.recipe, r.precision, r.row, *cells, *ends))


def draw(results: Mapping[str, Sequence[Result]], path: Path) -> None:
    """Draws milliseconds and ratio against length and against heads."""
    from latentheads.contrib.plot import Picture, save  # slow to import
    from latentheads.contrib.plot.canvas import WIDTH, add_legend, scale_by_log, write_title
    from latentheads.contrib.plot.style import styled

    labels = {"length": "tokens per sentence", "heads": "heads per block"}
    first = results["length"][0]
    with styled():
        figure = Picture(WIDTH, 5.2)
        axes = figure.subplots(2, 2, sharex="col")
        for (above, below), (axis, points) in zip(axes.T, results.items(), strict=True):
            draw_rows(above, points, f"size.{axis}", "ms")
            draw_rows(below, points, f"size.{axis}", "ratio", ("ratio_low", "ratio_high"))
            scale_by_log(above)
            below.set_ylim(bottom=0)
            below.set_xlabel(labels[axis])
        axes[0][0].set_ylabel("time per step, milliseconds")
        axes[1][0].set_ylabel(f"ratio to {BASELINE}")
        add_legend(figure, columns=4)
        what = f"A training step of {first.recipe}, {first.precision}"
        write_title(figure, f"{what}: medians over rounds\nbars of the ratio: its quartiles")
    save(figure, path)


def make_parser() -> Parser:
    """Builds the command line."""
    parser = bench_parser("bench.py", __doc__, FULL, NUMBERS)
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
    parser.add_argument(
        "--figure", type=writable, metavar="FILE", help="measure growth with length and heads too"
    )
    return parser


def make_plan(options: argparse.Namespace) -> Plan:
    """The default or the quick plan with what was asked for."""
    plan = (QUICK if options.quick else FULL).take(options, NUMBERS)
    for size in chain.from_iterable(growing(plan).values() if options.figure else ()):
        check_size(size)
    return plan


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the benchmark."""
    options, plan, setting, facts = begin(make_parser(), arguments, make_plan)
    print(f"{where(facts)}\nMB: {facts['memory']}")
    report(options, plan, setting, facts)


def report(
    options: argparse.Namespace, plan: Plan, setting: Setting, facts: dict[str, Any]
) -> None:
    """Measures, prints and writes the files asked for."""
    recipes = options.recipe or ["coda", "cascaded"]
    precisions = options.precision or PRECISIONS
    rows = measure(list(product(recipes, precisions, [plan.size])), plan, setting)
    show(rows)
    written: dict[str, Any] = {"rows": rows}
    if options.figure:
        brief = replace(plan, rounds=plan.growth_rounds, warmup=1)
        points = {
            axis: measure(list(product(recipes[-1:], precisions[:1], sizes)), brief, setting)
            for axis, sizes in growing(plan).items()
        }
        draw(points, options.figure)
        written["growth"] = points
    write(options.json, facts, **written)


if __name__ == "__main__":
    main()
