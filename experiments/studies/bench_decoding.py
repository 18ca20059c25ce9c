"""Times decoding with keys and values kept against computing them again for every token.

    python experiments/studies/bench_decoding.py --recipe coda --beam 5

Both rows are the same beam search over the same network in evaluation mode, its weights random and
its heads at their prior's mean; only what a further token costs differs:

    cache           the decoder runs on the last token, the keys and values before it are kept
    re-computation  the decoder runs again on all tokens so far

Neither gains by anything else: both encode the source once, let all hypotheses of a sentence read
one memory, and score the vocabulary after the last token only. EOS cannot come before the limit,
where the search forces it, so all sentences grow as long. The rows take turns within every round,
the order rotated. A row's time is its median over rounds, and its ratio the median of its ratios to
the cache within each round, with the interquartile range.

Before that both have to find the same: equal tokens, scores within 0.001. Random weights leave
hypotheses so close that rounding may choose between them; a sentence that differs is searched again
in float64, where it has to be the same, and is reported as a tie.
"""

from __future__ import annotations

import argparse
import copy
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import latentheads.experiments.cli.startup  # noqa: F401

import torch
from torch import Tensor

from latentheads.batch import EOS, Batch
from latentheads.decoding.beam_search import Hypothesis, beam_search
from latentheads.experiments.cli.errors import exit_with_error
from latentheads.experiments.cli.parser import Parser, positive
from latentheads.experiments.studies.benchmarks import command_line
from latentheads.experiments.studies.benchmarks.baselines import (
    RECIPES,
    Setting,
    Size,
    make_batch,
    make_pair,
)
from latentheads.experiments.studies.benchmarks.command_line import (
    SIZES,
    begin,
    bench_parser,
    where,
    write,
)
from latentheads.experiments.studies.benchmarks.racing import progress, quartiles, race
from latentheads.model import DecodingState
from latentheads.models import Translation

CACHE, AGAIN = "cache", "re-computation"
TOLERANCE = 1e-3
NUMBERS = ("limit", "rounds", "warmup", *SIZES)
"""Numbers of the plan that have an option."""


@dataclass(frozen=True)
class Plan(command_line.Plan):
    """How much is run; the length of its size is the source's.

    Attributes:
        limit: Tokens that are decoded, EOS counted.
    """

    limit: int


FULL = Plan(Size(128, 256, 4, 4, 64, 16, 9700), 5, 1, 24)
QUICK = Plan(Size(32, 64, 2, 4, 4, 8, 50), 3, 1, 6)


@dataclass(frozen=True)
class Result:
    """One row as measured, the time that of decoding the batch.

    Ties are the sentences which the rows find the same in float64 only.
    """

    recipe: str
    beam: int
    row: str
    ms: float
    sentences_per_second: float
    ratio: float
    ratio_low: float
    ratio_high: float
    ties: int


class DisagreementError(Exception):
    """The rows do not find the same sentences."""


@dataclass
class Read:
    """What re-computation keeps between two tokens: the encoded source and the tokens so far.

    Attributes:
        source: The network's own state, of which only the memory is read.
        tokens: Those fed so far, ``sentence hypothesis token``; None before the first.
    """

    source: Any
    tokens: Tensor | None = None

    def fed(self, tokens: Tensor) -> Tensor:
        """Appends further tokens and returns all of them."""
        so_far = tokens if self.tokens is None else torch.cat([self.tokens, tokens], -1)
        self.tokens = so_far
        return so_far

    def select(self, sentences: Tensor | None, hypotheses: Tensor | None = None) -> None:
        """Keeps sentences and hypotheses, as a :class:`latentheads.model.DecodingState` does."""
        self.source.select(sentences)
        if self.tokens is None:
            return
        if sentences is not None:
            self.tokens = self.tokens.index_select(0, sentences)
        if hypotheses is not None:
            self.tokens = self.tokens.take_along_dim(hypotheses[..., None], 1)


class Recomputing:
    """A translation model that runs its decoder on all tokens so far for every further one.

    Args:
        model: The model; heads that are sampled would be sampled anew for every token.
    """

    def __init__(self, model: Translation) -> None:
        self.model = model
        self.density_dtype = model.density_dtype

    def begin(self, batch: Batch) -> Read:
        """Encodes the source."""
        return Read(self.model.begin(batch))

    def step(self, tokens: Tensor, state: Read) -> Tensor:
        """Feeds further tokens of every hypothesis and scores the vocabulary after the last."""
        fed, source = state.fed(tokens), state.source
        reach = self.model.step_mask(fed, 0)
        x = self.model.target_embedding(fed)
        x = self.model.decoder(x, reach, source.memory, source.memory_mask, DecodingState())
        return self.model.predict(x[..., -1:, :])


class Lasting:
    """A decoder whose sentences cannot end before the limit."""

    def __init__(self, model: Any, limit: int) -> None:
        self.model, self.limit, self.left = model, limit, limit
        self.density_dtype = model.density_dtype

    def begin(self, batch: Batch) -> Any:
        """Prepares to decode a batch."""
        self.left = self.limit
        return self.model.begin(batch)

    def step(self, tokens: Tensor, state: Any) -> Tensor:
        """Feeds one token of every hypothesis and scores all but EOS; at the limit, EOS too."""
        logits: Tensor = self.model.step(tokens, state)
        self.left -= 1
        if self.left:
            logits[..., EOS] = -torch.inf
        return logits


@dataclass
class Searcher:
    """One row: a search that is run again and again."""

    name: str
    model: Lasting
    batch: Batch
    beam: int
    setting: Setting
    seconds: list[float] = field(default_factory=list)
    found: list[list[Hypothesis]] = field(default_factory=list)

    def timed(self, seed: int) -> float:
        """Seconds of one search; it needs no random numbers."""
        return self.setting.time(self._search)

    def _search(self) -> None:
        self.found = beam_search(
            self.model, self.batch, self.beam, max_new_tokens=self.model.limit - 1
        )


def make_searchers(
    model: Translation, batch: Batch, beam: int, limit: int, setting: Setting
) -> list[Searcher]:
    """Both rows, the cache first."""
    rows: dict[str, Any] = {CACHE: model, AGAIN: Recomputing(model)}
    return [Searcher(name, Lasting(row, limit), batch, beam, setting) for name, row in rows.items()]


def measure(recipe: str, beam: int, plan: Plan, setting: Setting, bar: Any) -> list[Result]:
    """Times both rows of a recipe against each other."""
    model = make_pair(recipe, plan.size, setting)[0].eval()
    batch = make_batch(plan.size, setting)
    searchers: list[Any] = [*make_searchers(model, batch, beam, plan.limit, setting)]
    race(searchers, 0, plan.warmup, setting.seed, bar)
    tied = ties(searchers, model)
    race(searchers, plan.rounds, 0, setting.seed, bar)
    return [_result(recipe, row, searchers[0].seconds, tied) for row in searchers]


def ties(searchers: Sequence[Searcher], model: Translation) -> int:
    """Counts the sentences that the rows found the same in float64 only."""
    kept, again = searchers
    places = differing(kept.found, again.found)
    if places:
        target, source = kept.batch.target[places], kept.batch.source
        part = Batch(target, None if source is None else source[places])
        exact = copy.deepcopy(model).double()
        _refuse_others(make_searchers(exact, part, kept.beam, kept.model.limit, kept.setting))
    return len(places)


def _refuse_others(searchers: Sequence[Searcher]) -> None:
    for searcher in searchers:
        searcher.timed(0)
    number = len(differing(*(searcher.found for searcher in searchers)))
    if number:
        what = f"{CACHE} and {AGAIN} find other tokens or scores"
        raise DisagreementError(f"{what}, in float64 too, for {number} of the batch's sentences")


def differing(one: list[list[Hypothesis]], other: list[list[Hypothesis]]) -> list[int]:
    """The sentences for which two searches found other tokens, or scores too far apart."""
    pairs = enumerate(zip(one, other, strict=True))
    return [place for place, (ours, theirs) in pairs if not _same(ours, theirs)]


def _same(ours: list[Hypothesis], theirs: list[Hypothesis]) -> bool:
    if [found.tokens for found in ours] != [found.tokens for found in theirs]:
        return False
    return all(abs(a.score - b.score) <= TOLERANCE for a, b in zip(ours, theirs))


def _result(recipe: str, searcher: Searcher, yardstick: list[float], tied: int) -> Result:
    seconds = statistics.median(searcher.seconds)
    low, ratio, high = quartiles([a / b for a, b in zip(searcher.seconds, yardstick)])
    speed = len(searcher.batch) / seconds
    cell = recipe, searcher.beam, searcher.name
    return Result(*cell, 1e3 * seconds, speed, ratio, low, high, tied)


def table(
    recipes: Sequence[str], beams: Sequence[int], plan: Plan, setting: Setting
) -> list[Result]:
    """Measures every recipe with every beam."""
    cells = list(product(recipes, beams))
    results = []
    with progress(len(cells) * 2 * (plan.warmup + plan.rounds)) as bar:
        for recipe, beam in cells:
            bar.set_description(f"{recipe}, beam {beam}")
            results += measure(recipe, beam, plan, setting, bar)
    return results


def show(results: list[Result]) -> None:
    """Prints the table."""
    head = ("recipe", "beam", "row", "ms", "sentences/s", "ratio", "quartiles", "ties")
    form = "{:<12} {:>4} {:<14} {:>8} {:>11} {:>6} {:>11} {:>4}"
    print(form.format(*head))
    for r in results:
        spread = f"{r.ratio_low:.2f}-{r.ratio_high:.2f}"
        cells = (f"{r.ms:.1f}", f"{r.sentences_per_second:.1f}", f"{r.ratio:.2f}", spread)
        print(form.format(r.recipe, r.beam, r.row, *cells, r.ties))


def make_parser() -> Parser:
    """Builds the command line."""
    parser = bench_parser("bench_decoding.py", __doc__, FULL, NUMBERS)
    parser.add_argument(
        "--recipe", action="append", choices=RECIPES, help="may be repeated; default: all"
    )
    parser.add_argument(
        "--beam", action="append", type=positive, metavar="N", help="may be repeated; default: 1, 5"
    )
    parser.add_argument("--quick", action="store_true", help="a tiny network and few rounds")
    return parser


def make_plan(options: argparse.Namespace) -> Plan:
    """The default or the quick plan with what was asked for."""
    return (QUICK if options.quick else FULL).take(options, NUMBERS)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the benchmark."""
    parser = make_parser()
    options, plan, setting, facts = begin(parser, arguments, make_plan)
    del facts["memory"], facts["setting"]["adam"]  # of steps that train
    size = plan.size
    print(where(facts))
    print(f"{size.batch} sentences of {size.length} tokens, {plan.limit} decoded for each")
    try:
        rows = table(options.recipe or [*RECIPES], options.beam or [1, 5], plan, setting)
    except DisagreementError as error:
        exit_with_error(parser.prog, error, 1)
    show(rows)
    write(options.json, facts, rows=rows)


if __name__ == "__main__":
    main()
