"""How a step grows with the length of its blocks: rows at every length, a table, a figure."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyro
import torch

from latentheads.batch import EOS, SPECIALS, Batch
from latentheads.experiments.benchmarks.baselines import PRECISIONS, Runner, Setting, Size
from latentheads.experiments.benchmarks.command_line import Parser, positive, writable
from latentheads.experiments.benchmarks.racing import metadata, progress, quartiles, race

__all__ = [
    "FULL",
    "KEPT",
    "Growth",
    "Point",
    "add_options",
    "begin",
    "race_at_all",
    "report",
    "write_points",
]

KEPT = ", fusion kept"
"""What the name of a row ends in that is drawn beside the row of the same name without it."""


@dataclass(frozen=True)
class Growth:
    """What is run.

    Attributes:
        size: Of the network; its length and batch change from point to point.
        lengths: Tokens a block.
        tokens: Tokens a batch.
        rounds: Timed rounds at each length.
        warmup: Rounds before those.
    """

    size: Size = field(default_factory=lambda: Size(heads=8))
    lengths: tuple[int, ...] = (128, 256, 512, 1024)
    tokens: int = 1024
    rounds: int = 10
    warmup: int = 2

    @property
    def sizes(self) -> list[Size]:
        """One a length."""
        return [replace(self.size, length=n, batch=self.tokens // n) for n in self.lengths]


FULL = Growth()


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


def make_batch(size: Size, setting: Setting) -> Batch:
    """Random blocks."""
    generator = torch.Generator().manual_seed(setting.seed)
    shape = (size.batch, size.length)
    tokens = torch.randint(len(SPECIALS), size.vocabulary, shape, generator=generator)
    tokens[:, -1] = EOS
    return Batch(tokens).to(setting.device)


def race_at_all(
    make: Callable[[Size, Batch], list[Runner]],
    growth: Growth,
    setting: Setting,
    point: Callable[[Runner, Size], Any] | None = None,
) -> list[Any]:
    """Times the rows that a function makes against each other at every length.

    Args:
        make: Makes the rows.
        growth: What is run.
        setting: Where.
        point: Makes the point of a row that has run; a :class:`Point` where none is given.
    """
    points = []
    for size in growth.sizes:
        runners = make(size, make_batch(size, setting))
        with progress(len(runners) * (growth.rounds + growth.warmup)) as bar:
            bar.set_description(f"{size.length} tokens a block")
            race(runners, growth.rounds, growth.warmup, setting.seed, bar)
        points += [(point or _point)(runner, size) for runner in runners]
    return points


def _point(runner: Runner, size: Size) -> Point:
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
            cells = (f"{p.ms:.1f}", spread, f"{p.memory / 1e6:.0f}", f"{p.tokens_per_second:.0f}")
            print(form.format(row, p.length, p.blocks, *cells))


def draw(points: Sequence[Point], title: str, path: Path) -> None:
    """Draws time and memory against length, both on logarithmic axes."""
    from latentheads.plot import Picture, save  # takes long to load
    from latentheads.plot.canvas import WIDTH, add_legend, write_title
    from latentheads.plot.style import styled

    with styled():
        figure = Picture(WIDTH, 3.5)
        left, right = figure.subplots(1, 2)
        _panel(left, points, "a step, milliseconds", lambda point: point.ms)
        _panel(right, points, "memory, MB", lambda point: point.memory / 1e6)
        add_legend(figure, columns=4)
        write_title(figure, title)
    save(figure, path)


def _panel(axes: Any, points: Sequence[Point], label: str, value: Callable[[Point], float]) -> None:
    from matplotlib.ticker import NullLocator

    from latentheads.plot.canvas import scale_by_log
    from latentheads.plot.style import MARKERS, PALETTE

    rows = list(dict.fromkeys(point.row for point in points))
    kinds = list(dict.fromkeys(row.removesuffix(KEPT) for row in rows))
    for row in rows:
        line, place = [p for p in points if p.row == row], kinds.index(row.removesuffix(KEPT))
        style = {"color": PALETTE[place], "marker": MARKERS[place]}
        style["linestyle"] = "--" if KEPT in row else "-"
        axes.plot([p.length for p in line], [value(p) for p in line], label=row, **style)
    lengths = sorted({point.length for point in points})
    axes.set_xscale("log", base=2)
    scale_by_log(axes)
    axes.set_xticks(lengths, [str(length) for length in lengths])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("tokens a block")
    axes.set_ylabel(label)
    axes.grid()


def add_options(parser: Parser, full: Growth, figure: bool = True) -> None:
    """Adds what says where, how long and how often rows run, and what is written."""
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="default: cpu")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32", help="default: fp32")
    parser.add_argument(
        "--length",
        action="append",
        type=positive,
        metavar="N",
        help=f"tokens a block, may be repeated; default: {', '.join(map(str, full.lengths))}",
    )
    parser.add_argument("--json", type=writable, metavar="FILE", help="write points and metadata")
    if figure:
        parser.add_argument("--figure", type=writable, metavar="FILE", help="draw time and memory")
    parser.add_argument("--seed", type=positive, default=1, help="default: 1")
    parser.add_argument("--threads", type=positive, help="of the processor; default: PyTorch's")
    numbers = {name: getattr(full, name) for name in ("tokens", "rounds", "warmup")}
    network = {n: v for n, v in asdict(full.size).items() if n not in ("batch", "length")}
    for name, value in (numbers | network).items():
        parser.add_argument(
            f"--{name}", type=positive, metavar="N", default=value, help=f"default: {value}"
        )


def make_growth(options: argparse.Namespace, full: Growth = FULL) -> Growth:
    """What was asked for."""
    names = [name for name in asdict(full.size) if name not in ("batch", "length")]
    size = replace(full.size, **{name: getattr(options, name) for name in names})
    lengths = tuple(sorted(set(options.length or full.lengths)))
    return Growth(size, lengths, options.tokens, options.rounds, options.warmup)


def check(parser: Parser, options: argparse.Namespace, growth: Growth) -> None:
    """Refuses what cannot be run."""
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: PyTorch sees no CUDA device here")
    if growth.size.vocabulary <= len(SPECIALS):
        parser.error(f"--vocabulary must exceed the {len(SPECIALS)} special tokens")
    if growth.lengths[0] < 2:
        parser.error("--length must be at least 2")
    if growth.lengths[-1] > growth.tokens:
        parser.error(f"--tokens must hold a block of {growth.lengths[-1]}, got {growth.tokens}")
    try:
        _ = growth.size.network
    except ValueError as error:
        parser.error(str(error))


def begin(
    parser: Parser, arguments: Sequence[str] | None, full: Growth = FULL
) -> tuple[argparse.Namespace, Growth, Setting, dict[str, Any]]:
    """Reads what was asked for, sets the machine, and says where and on what rows run."""
    options = parser.parse_args(arguments)
    growth = make_growth(options, full)
    check(parser, options, growth)
    torch.set_num_threads(options.threads or torch.get_num_threads())
    pyro.enable_validation(False)
    setting = Setting(options.device, options.seed)
    facts = metadata(asdict(growth), setting)
    where = "{device}, {threads} threads, torch {torch}, pyro {pyro}".format(**facts)
    print(f"{where}, {options.precision}")
    return options, growth, setting, facts


def write_points(points: Sequence[Any], facts: dict[str, Any], path: Path) -> None:
    """Writes points, each a dataclass, and everything that they depend on."""
    written = {"metadata": facts, "points": [asdict(point) for point in points]}
    path.write_text(json.dumps(written, indent=1) + "\n")


def report(points: Sequence[Point], options: argparse.Namespace, facts: dict[str, Any]) -> None:
    """Prints the table, and writes and draws what was asked for."""
    show(points, facts["memory"])
    if options.figure:
        threads = f"{facts['threads']} thread{'s' if facts['threads'] > 1 else ''}"
        what = f"A training step of {options.tokens} tokens"
        title = f"{what}, {options.precision}, {facts['device']}, {threads}"
        draw(points, title, options.figure)
    if options.json:
        write_points(points, facts, options.json)
