"""Growth of a language model's training step with the length of its blocks: time and memory.

Blocks get longer and fewer, so that every batch has the same tokens: what grows is attention, which
knows every pair of tokens. A step is forward, loss, backward and clearing the gradients. Rows take
turns within every round, the order rotated; a row's time is its median over rounds.

    transformer            no noise
    cascaded               the posterior reads the logits below through the fusion
    cascaded, fusion kept  the same, the fusion's hidden activations kept for the backward pass
    transformer+group      H of 2H candidates for one task: the weights of the chosen are gathered
    transformer+selection  all 2H candidates computed, half of them masked
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import latentheads.experiments.cli.beginning  # noqa: F401

import pyro
import torch
from torch import Tensor

from latentheads import Batch, Head_ELBO
from latentheads.batch import EOS, SPECIALS
from latentheads.experiments.bench import (
    Parser,
    Plan,
    metadata,
    positive,
    progress,
    quartiles,
    race,
    writable,
)
from latentheads.experiments.benchmarks.baselines import (
    PRECISIONS,
    RECIPES,
    Runner,
    Setting,
    Size,
    under,
)
from latentheads.experiments.cli.names import split_law
from latentheads.families import fusion
from latentheads.families.fusion import Fusion
from latentheads.models import LanguageModel, make_prior
from latentheads.selection.selector import LAWS, Selector

KEPT = ", fusion kept"


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


def make_rows(
    recipe: str, size: Size, setting: Setting, precision: str, batch: Batch
) -> list[Runner]:
    """A recipe, and where it has a fusion the same with all activations kept."""
    torch.manual_seed(setting.seed)
    name, law = split_law(recipe)
    prior, guide_of = RECIPES[name]
    network = replace(size.network, norm="pre")
    selector = Selector(law, size.heads, 2 * size.heads) if law else None
    model: Any = LanguageModel(size.vocabulary, make_prior(prior), network, selector=selector)
    model = model.to(setting.device)
    guide: Any = guide_of(model).to(setting.device)
    loss, parameters = under(Head_ELBO(analytic=True), model, guide, batch)
    runners = [Runner(recipe, loss, parameters, setting, precision)]
    if any(isinstance(m, Fusion) for part in (model, guide) for m in part.modules()):
        runners.append(Runner(recipe + KEPT, _keeping(loss), parameters, setting, precision))
    return runners


def _keeping(loss: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """The same loss, the fusion's activations kept."""

    def kept() -> Tensor:
        fusion.RECOMPUTE = False
        try:
            return loss()
        finally:
            fusion.RECOMPUTE = True

    return kept


def measure(
    recipes: Sequence[str], precision: str, growth: Growth, setting: Setting
) -> list[Point]:
    """Times all rows against each other at every length."""

    def rows(size: Size, batch: Batch) -> list[Runner]:
        made = (make_rows(recipe, size, setting, precision, batch) for recipe in recipes)
        return [runner for some in made for runner in some]

    return race_at_all(rows, growth, setting)


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
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
    _panel(axes[0], points, "step [ms]", lambda point: point.ms)
    _panel(axes[1], points, "memory [MB]", lambda point: point.memory / 1e6)
    axes[0].legend(fontsize="small")
    figure.suptitle(title, fontsize="medium")
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _panel(axes: Any, points: Sequence[Point], label: str, value: Callable[[Point], float]) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    colours: dict[str, str] = {}
    for row in dict.fromkeys(point.row for point in points):
        line = [point for point in points if point.row == row]
        colour = colours.setdefault(row.removesuffix(KEPT), f"C{len(colours)}")
        style = {"color": colour, "marker": "o", "linestyle": "--" if KEPT in row else "-"}
        axes.plot([p.length for p in line], [value(p) for p in line], label=row, **style)
    lengths = sorted({point.length for point in points})
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(lengths, [str(length) for length in lengths])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("block length [tokens]")
    axes.set_ylabel(label)
    axes.grid(alpha=0.3)


def make_parser() -> Parser:
    """Builds the command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = Parser("bench_length.py", description=__doc__, formatter_class=form)
    parser.add_argument(
        "--recipe",
        action="append",
        choices=[*RECIPES, *(f"{recipe}+{law}" for recipe in RECIPES for law in LAWS)],
        metavar="RECIPE",
        help=f"{', '.join(RECIPES)}, behind a + a law of selection: {', '.join(LAWS)}; may be "
        "repeated; default: transformer, cascaded",
    )
    add_options(parser, FULL)
    return parser


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


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the benchmark."""
    options, growth, setting, facts = begin(make_parser(), arguments)
    recipes = list(dict.fromkeys(options.recipe or ("transformer", "cascaded")))
    points = measure(recipes, options.precision, growth, setting)
    report(points, options, facts)


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
    facts = metadata(Plan(growth.size), setting) | {"plan": asdict(growth)}
    where = "{device}, {threads} threads, torch {torch}, pyro {pyro}".format(**facts)
    print(f"{where}, {options.precision}")
    return options, growth, setting, facts


def report(points: Sequence[Point], options: argparse.Namespace, facts: dict[str, Any]) -> None:
    """Prints the table, and writes and draws what was asked for."""
    show(points, facts["memory"])
    if options.figure:
        title = f"a training step of {options.tokens} tokens, {options.precision}"
        draw(points, title, options.figure)
    if options.json:
        written = {"metadata": facts, "points": [asdict(point) for point in points]}
        options.json.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
