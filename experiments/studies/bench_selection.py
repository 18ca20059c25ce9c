"""Speed of a network that selects its heads, once trained: only the chosen are computed.

    python experiments/studies/bench_selection.py --threads 1 --rounds 8

Every row runs the same language model forward on the same blocks of one task, without gradients,
and differs in its heads. Rows take turns within every round, the order rotated; a row's time is its
median over rounds, GFLOP what its matrix products multiply and add.

    heads            H heads, nothing to select
    group, subset    H of 2H candidates: the weights of the chosen are gathered
    bernoulli        H of 2H candidates speak: the weights of those are gathered
    masked           2H candidates computed, half of them multiplied by zero
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import latentheads.experiments.cli.startup  # noqa: F401

import torch
from torch import Tensor

from latentheads.batch import Batch
from latentheads.experiments.cli.parser import Parser
from latentheads.experiments.studies.benchmarks.baselines import Forward, Runner, Setting, Size
from latentheads.experiments.studies.benchmarks.command_line import write
from latentheads.experiments.studies.benchmarks.growth import (
    Growth,
    begin,
    growth_parser,
    make_batch,
    race_at_all,
)
from latentheads.experiments.studies.benchmarks.racing import quartiles
from latentheads.guides import Tied
from latentheads.handlers import PlugIn, SharedSamples
from latentheads.latents.handlers import WithSelection
from latentheads.latents.selection.strategies import Strategy, make_selector
from latentheads.latents.selector import SelectionFamily
from latentheads.models import LanguageModel
from latentheads.models.network import PreNorm
from latentheads.names import SELECTION

FULL = Growth(Size(heads=8), 20, 3, (32, 128, 512), tokens=2048)
ROWS: dict[str, Strategy | None] = {
    "heads": None,
    "group": "group",
    "subset": "subset",
    "bernoulli": "bernoulli",
    "masked": "bernoulli",
}


@dataclass(frozen=True)
class Point:
    """One row at one length; times in milliseconds."""

    row: str
    length: int
    ms: float
    low: float
    high: float
    gflop: float


def make_rows(size: Size, setting: Setting, precision: str) -> list[Runner]:
    """One network for each row."""
    batch = replace(make_batch(size, setting), one_task=True)
    made = ((name, _forward(name, size, setting, batch)) for name in ROWS)
    return [Forward(name, *parts, setting, precision) for name, parts in made]


def _forward(
    name: str, size: Size, setting: Setting, batch: Batch
) -> tuple[Callable[[], Tensor], list[Tensor]]:
    """A row's network to run, and its parameters."""
    torch.manual_seed(setting.seed)
    strategy = ROWS[name]
    latents = [make_selector(strategy, size.heads, 2 * size.heads)] if strategy else []
    network = replace(size.network, norm=PreNorm())
    model: Any = LanguageModel(size.vocabulary, network, latents=latents)
    model = model.to(setting.device).eval()
    guide = Tied(model)
    first = torch.arange(2 * size.heads, device=setting.device) < size.heads
    wanted = torch.where(first, 1.0, -1.0)
    values: dict[str, Tensor] = {}
    families = guide.find_posteriors(SelectionFamily)
    for module in model.selecting_blocks:
        family = families[module.block.site(SELECTION)]
        family.weight.data.copy_(wanted.expand_as(family.weight))
        values[module.block.site(SELECTION)] = family().mode.detach().requires_grad_()

    def run() -> Tensor:
        chosen = SharedSamples(values) if name == "masked" else WithSelection(guide)
        with PlugIn(), chosen:
            law_of_tokens = model.likelihood(model.states(batch), batch)
        total: Tensor = law_of_tokens.log_prob(batch.scored).sum()
        return total

    return run, list(model.parameters())


def _point(runner: Runner, beside: Sequence[Runner], size: Size) -> Point:
    low, middle, high = (1e3 * seconds for seconds in quartiles(runner.seconds))
    return Point(runner.name, size.length, middle, low, high, runner.operations() / 1e9)


def show(points: Sequence[Point]) -> None:
    """Prints the table, and how many times as fast as masking each row is."""
    form = "{:>6}  {:<10} {:>8} {:>15} {:>8} {:>12}"
    print(form.format("tokens", "row", "ms", "quartiles", "GFLOP", "speed-up"))
    masked = {point.length: point.ms for point in points if point.row == "masked"}
    for p in points:
        cells = (f"{p.ms:.1f}", f"{p.low:.1f}-{p.high:.1f}", f"{p.gflop:.2f}")
        print(form.format(p.length, p.row, *cells, f"{masked[p.length] / p.ms:.2f}"))


def make_parser() -> Parser:
    """Builds the command line."""
    return growth_parser("bench_selection.py", __doc__, FULL, figure=False)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the benchmark."""
    options, growth, setting, facts = begin(make_parser(), arguments, FULL)
    points = race_at_all(make_rows, growth, setting, options.precision, _point)
    show(points)
    write(options.json, facts, points=points)


if __name__ == "__main__":
    main()
