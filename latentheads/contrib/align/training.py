"""Training of both directions by expectation maximisation with exact sums, so that they agree.

The E step computes the exact posterior of both directions. Counts are those of a mixture of each
direction's own posterior and of the geometric mean of both, after Liang et al. 2006
(https://aclanthology.org/N06-1014), who multiply them. The M step is closed for the translation
table and a step of iterative scaling for jumps; nothing is random.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from latentheads.checks import check_least, check_most
from latentheads.contrib.align.bitext import Bitext, PairBatch
from latentheads.contrib.align.chain import LinkChain
from latentheads.contrib.align.jumps import JumpCounts, Jumps, initial_jumps
from latentheads.contrib.align.lexicon import Lexicon, LexiconCounts
from latentheads.contrib.align.model import LinkModel


@dataclass(frozen=True)
class AlignerOptions:
    """Options of training.

    Attributes:
        iterations: Passes of expectation maximisation over the text.
        null_probability: Prior probability that a word has no link.
        agreement: Weight of the geometric mean of both directions' posteriors in expected counts; 0
            trains each direction alone.
        jump_smoothing: Jumps of all words that are added to those from each word.
    """

    iterations: int = 6
    null_probability: float = 0.2
    agreement: float = 1.0
    jump_smoothing: float = 20.0

    def __post_init__(self) -> None:
        values = vars(self)
        check_least(values, iterations=1, null_probability=0.0, agreement=0.0, jump_smoothing=0.0)
        check_most(values, agreement=1.0)
        if not 0 < self.null_probability < 1:
            raise ValueError(
                f"null_probability must lie between 0 and 1, got {self.null_probability}"
            )


@dataclass
class TrainedDirection:
    """What training changes of one direction.

    Attributes:
        lexicon: The prior of the translation table.
        counts: Expected counts of links.
        jumps: Weights of jumps.
        log_prob: log p of the text before the last M step, in nats, by the table of that step.
    """

    lexicon: Lexicon
    counts: LexiconCounts
    jumps: Jumps
    log_prob: float = float("-inf")


@dataclass
class _Expectations:
    """Sums over a text of one direction: counts of links, of jumps, and log p."""

    lexicon: LexiconCounts
    jumps: JumpCounts
    log_prob: float = 0.0


def train_directions(
    bitext: Bitext,
    options: AlignerOptions,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[TrainedDirection, TrainedDirection]:
    """Trains both directions of a text.

    Args:
        bitext: The text.
        options: Options of training.
        report: Called with the number of batches that are done, and of all passes.
    """
    texts = bitext, bitext.reverse()
    directions = [_initial_direction(text, options) for text in texts]
    tables = [direction.lexicon.associations() for direction in directions]
    for iteration in range(options.iterations):
        models = [LinkModel(table, d.jumps) for table, d in zip(tables, directions, strict=True)]
        before, total = iteration * len(bitext.batches), options.iterations * len(bitext.batches)
        sums = [_Expectations(d.lexicon.new_counts(), d.jumps.new_counts()) for d in directions]
        for done, batches in enumerate(zip(*(text.batches for text in texts), strict=True), 1):
            _expect_batch(sums, models, batches, options.agreement)
            report(before + done, total)
        for direction, expected in zip(directions, sums, strict=True):
            direction.counts, direction.log_prob = expected.lexicon, expected.log_prob
            direction.jumps = direction.jumps.update(expected.jumps)
        tables = [direction.lexicon.variational(direction.counts) for direction in directions]
    return directions[0], directions[1]


def _initial_direction(text: Bitext, options: AlignerOptions) -> TrainedDirection:
    """The direction before training; numbers have at least 32 bits, whatever torch's default."""
    dtype = torch.promote_types(torch.get_default_dtype(), torch.float32)
    lexicon = Lexicon(text, text.target_counts.to(dtype))
    settings = options.null_probability, options.jump_smoothing
    jumps = initial_jumps(len(text.source), *settings, dtype)
    return TrainedDirection(lexicon, lexicon.new_counts(), jumps)


def geometric_mean(
    forward: Float[Tensor, "pair target source"], backward: Float[Tensor, "pair source target"]
) -> Float[Tensor, "pair target source"]:
    """The geometric mean of both directions' posteriors."""
    return (forward * backward.mT).sqrt()


def _expect_batch(
    sums: Sequence[_Expectations],
    models: Sequence[LinkModel],
    batches: Sequence[PairBatch],
    agreement: float,
) -> None:
    """The E step of a batch, which is seen in both directions."""
    chains = [model.posterior(batch) for model, batch in zip(models, batches, strict=True)]
    joint = agreement * geometric_mean(*(chain.marginals for chain in chains))
    for parts in zip(sums, chains, batches, models, (joint, joint.mT), strict=True):
        _add_expectations(*parts, own=1 - agreement)


def _add_expectations(
    sums: _Expectations,
    chain: LinkChain,
    batch: PairBatch,
    model: LinkModel,
    shared: Float[Tensor, "pair target source"],
    own: float,
) -> None:
    """Adds the expected counts of a batch in one direction.

    Args:
        sums: The counts.
        chain: The posterior of the direction.
        batch: The sentence pairs.
        model: The model of the direction.
        shared: The weighted mean of both directions' posteriors.
        own: The weight of the direction's own.
    """
    links = own * chain.marginals + shared
    null = (1 - links.sum(-1)).clamp(min=0) * batch.target_mask
    sums.lexicon.add(batch, links, null)
    model.jumps.add_counts(sums.jumps, batch, chain.weights.moves, chain.expected_moves)
    sums.log_prob += float(chain.log_normaliser.sum())
