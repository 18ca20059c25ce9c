"""How a step grows with the length of its blocks: rows at every length, a table, a figure."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from latentheads.batch import EOS, SPECIALS, Batch
from latentheads.experiments.cli.parser import Parser, positive, writable
from latentheads.experiments.studies.benchmarks import command_line
from latentheads.experiments.studies.benchmarks.baselines import PRECISIONS, Runner, Setting, Size
from latentheads.experiments.studies.benchmarks.command_line import (
    SIZES,
    Plan,
    bench_parser,
    where,
    write,
)
from latentheads.experiments.studies.benchmarks.racing import progress, quartiles, race

NUMBERS = ("tokens", "rounds", "warmup", *(n for n in SIZES if n not in ("batch", "length")))
"""Numbers that have an option; the lengths have one of their own."""

KEPT = ", fusion kept"
"""The ending of a row's name that is drawn beside the row of the same name without it."""


@dataclass(frozen=True)
class Growth(Plan):
    """The plan of a benchmark of growth; length and batch change from point to point."""

    lengths: tuple[int, ...]
    tokens: int

    @property
    def sizes(self) -> list[Size]:
        """One a length."""
        return [replace(self.size, length=n, batch=self.tokens // n) for n in self.lengths]


FULL = Growth(Size(heads=8), 10, 2, (128, 256, 512, 1024), tokens=1024)


@dataclass(frozen=True)
class Point:
    """One row at one length; times in milliseconds, memory in bytes."""

    row: str
    length: int
    blocks: int
    ms: float
    low: float
    high: float
    memory: int
    tokens_per_second: float

    @property
    def megabytes(self) -> float:
        """Memory as it is shown."""
        return self.memory / 1e6


def make_batch(size: Size, setting: Setting) -> Batch:
    """Random blocks."""
    generator = torch.Generator().manual_seed(setting.seed)
    shape = (size.batch, size.length)
    tokens = torch.randint(len(SPECIALS), size.vocabulary, shape, generator=generator)
    tokens[:, -1] = EOS
    return Batch(tokens).to(setting.device)


def race_at_all(
    make: Callable[[Size, Setting, str], list[Runner]],
    growth: Growth,
    setting: Setting,
    precision: str,
    point: Callable[[Runner, list[Runner], Size], Any] | None = None,
) -> list[Any]:
    """Times the rows that a function makes against each other at every length."""
    points = []
    for size in growth.sizes:
        runners = make(size, setting, precision)
        with progress(len(runners) * (growth.rounds + growth.warmup)) as bar:
            bar.set_description(f"{size.length} tokens per block")
            race(runners, growth.rounds, growth.warmup, setting.seed, bar)
        points += [(point or _point)(runner, runners, size) for runner in runners]
    return points


def _point(runner: Runner, beside: list[Runner], size: Size) -> Point:
    seconds = statistics.median(runner.seconds)
    low, _, high = quartiles(runner.seconds)
    speed = size.batch * size.length / seconds
    times = 1e3 * seconds, 1e3 * low, 1e3 * high
    return Point(runner.name, size.length, size.batch, *times, runner.memory(), speed)


def show(points: Sequence[Point], memory: str) -> None:
    """Prints the table, row by row."""
    print(f"MB: {memory}")
    head = ("row", "tokens", "blocks", "ms/step", "quartiles", "MB", "tokens/s")
    form = "{:<23} {:>6} {:>6} {:>8} {:>15} {:>7} {:>8}"
    print(form.format(*head))
    for row in dict.fromkeys(point.row for point in points):
        for p in (point for point in points if point.row == row):
            spread = f"{p.low:.1f}-{p.high:.1f}"
            cells = (f"{p.ms:.1f}", spread, f"{p.megabytes:.0f}", f"{p.tokens_per_second:.0f}")
            print(form.format(row, p.length, p.blocks, *cells))


def draw(points: Sequence[Point], title: str, path: Path) -> None:
    """Draws time and memory against length, both on logarithmic axes."""
    from latentheads.contrib.plot import Picture, save  # slow to import
    from latentheads.contrib.plot.canvas import WIDTH, add_legend, scale_by_log, write_title
    from latentheads.contrib.plot.style import styled

    with styled():
        figure = Picture(WIDTH, 3.5)
        left, right = figure.subplots(1, 2)
        draw_rows(left, points, "length", "ms", ("low", "high"))
        left.set_ylabel("time per step, milliseconds")
        draw_rows(right, points, "length", "megabytes")
        right.set_ylabel("memory, MB")
        for axes in (left, right):
            scale_by_log(axes)
            axes.set_xlabel("tokens per block")
        add_legend(figure, columns=4)
        write_title(figure, title)
    save(figure, path)


def draw_rows(
    axes: Any,
    points: Sequence[Any],
    across: str,
    value: str,
    ends: tuple[str, str] | None = None,
) -> None:
    """Draws the line of every row over a logarithmic axis, each value within its quartiles.

    Args:
        axes: Where.
        points: Each of a ``row``.
        across: The attribute that a row is drawn over, a whole number.
        value: The attribute that is drawn.
        ends: The attributes of its lower and upper quartile, where it has them.
    """
    from matplotlib.ticker import NullLocator

    from latentheads.contrib.plot.style import MARKERS, PALETTE

    place_of, read = attrgetter(across), attrgetter(across, value, *(ends or (value, value)))
    rows = dict.fromkeys(point.row for point in points)
    kinds = list(dict.fromkeys(row.removesuffix(KEPT) for row in rows))
    for row in rows:
        kind = kinds.index(row.removesuffix(KEPT))
        style = {"color": PALETTE[kind], "marker": MARKERS[kind]}
        if KEPT in row:  # the dashes alone do not show beside the short line of a legend
            style |= {"linestyle": "--", "markerfacecolor": "white"}
        line = [read(point) for point in points if point.row == row]
        where, middle, low, high = np.array(line, dtype=float).T
        reach = np.clip([middle - low, high - middle], 0, None) if ends else None  # rounding
        axes.errorbar(where, middle, reach, elinewidth=2.2, label=row, **style)
    places = sorted({place_of(point) for point in points})
    axes.set_xscale("log", base=2)
    axes.set_xticks(places, [str(place) for place in places])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid()


def growth_parser(
    name: str, description: str | None, full: Growth = FULL, figure: bool = True
) -> Parser:
    """Builds the options that the benchmarks of growth share."""
    parser = bench_parser(name, description, full, NUMBERS)
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32", help="default: fp32")
    parser.add_argument(
        "--length",
        action="append",
        type=positive,
        metavar="N",
        help=f"tokens per block, may be repeated; default: {', '.join(map(str, full.lengths))}",
    )
    if figure:
        parser.add_argument("--figure", type=writable, metavar="FILE", help="draw time and memory")
    return parser


def make_growth(options: argparse.Namespace, full: Growth) -> Growth:
    """Reads the plan from the options."""
    lengths = tuple(sorted(set(options.length or full.lengths)))
    growth = replace(full.take(options, NUMBERS), lengths=lengths)
    if lengths[-1] > growth.tokens:
        raise ValueError(f"--tokens must hold a block of {lengths[-1]}, got {growth.tokens}")
    return growth


def begin(
    parser: Parser,
    arguments: Sequence[str] | None,
    full: Growth = FULL,
    check: Callable[[argparse.Namespace, Growth], object] | None = None,
) -> tuple[argparse.Namespace, Growth, Setting, dict[str, Any]]:
    """Reads the command line, sets up the machine; ``check`` raises a ValueError for options."""

    def plan(options: argparse.Namespace) -> Growth:
        growth = make_growth(options, full)
        if check:
            check(options, growth)
        return growth

    begun = command_line.begin(parser, arguments, plan)
    options, *_, facts = begun
    print(f"{where(facts)}, {options.precision}")
    return begun


def report(points: Sequence[Point], options: argparse.Namespace, facts: dict[str, Any]) -> None:
    """Prints the table, and writes the file and draws the figure that were asked for."""
    show(points, facts["memory"])
    if options.figure:
        threads = f"{facts['threads']} thread{'s' if facts['threads'] > 1 else ''}"
        what = f"A training step of {facts['plan']['tokens']} tokens"
        where = f"{options.precision}, {facts['device']}, {threads}"
        title = f"{what}, {where}\nmedians of {facts['plan']['rounds']} rounds; bars: quartiles"
        draw(points, title, options.figure)
    write(options.json, facts, points=points)
