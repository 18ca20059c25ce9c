r"""Jumps between the source positions of consecutive links, for each word that is jumped from.

.. math:: A_{s's} = \frac{w_{e}(s - s')}{\sum_{s''} w_{e}(s'' - s')}, \qquad e = e_{s'},

with one weight for each distance up to a maximal one and, as in He 2007
(https://aclanthology.org/W07-0711), weights of each word that are smoothed by those of all words.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentheads.contrib.align.bitext import PADDING, PairBatch, take

MAX_JUMP = 12
"""Longest distance with a weight of its own; longer jumps have that of the longest."""

LEAST_SMOOTHING = 1e-6
"""Keeps the weights of a word that is never jumped from."""

LEAST_WEIGHT = 1e-9
"""Least weight of a jump after training."""


@dataclass
class JumpCounts:
    """Expected counts of jumps, one row for each source word and one for the start.

    Attributes:
        taken: Of each distance.
        offered: The same counts, if departures took distances by the current weights.
    """

    taken: Float[Tensor, "word distance"]
    offered: Float[Tensor, "word distance"]


@dataclass(frozen=True)
class Jumps:
    """Weights of jumps.

    Attributes:
        weights: By the word that is jumped from and the distance. The last row is that of the
            start; words without a row have that of all words, which is the first.
        null_probability: The probability that a target word has no link.
        smoothing: Jumps of all words that are added to those of each.
    """

    weights: Float[Tensor, "row distance"]
    null_probability: float
    smoothing: float

    @property
    def longest(self) -> int:
        """The longest distance with a weight of its own."""
        return self.weights.shape[-1] // 2

    def rows(self, batch: PairBatch) -> Int[Tensor, "pair position"]:
        """The row of the table for each position, with the start before the first word."""
        words = len(self.weights) - 2
        row = torch.where((batch.source >= words) | (batch.source == PADDING), 0, batch.source + 1)
        return torch.nn.functional.pad(row, (1, 0), value=len(self.weights) - 1)

    def distances(self, positions: int) -> Int[Tensor, "before position"]:
        """The column of the table for each pair of positions."""
        index = torch.arange(positions)
        longest = self.longest
        return (index - index[:, None]).clamp(-longest, longest) + longest

    def moves(self, batch: PairBatch) -> Float[Tensor, "pair before position"]:
        """The probability of a link to each position after each; see `ChainWeights`."""
        rows = self.rows(batch)
        columns = self.distances(rows.shape[1])
        weights = take(self.weights.view(-1), rows[:, :, None] * self.weights.shape[-1] + columns)
        is_word = torch.nn.functional.pad(batch.source_mask, (1, 0), value=False)
        weights = weights * is_word[:, None]
        exists = torch.nn.functional.pad(batch.source_mask, (1, 0), value=True)
        scale = (1 - self.null_probability) / weights.sum(-1, keepdim=True)
        return weights * (scale * exists[..., None])

    def with_words(self, words: int) -> Jumps:
        """The same jumps with rows for more words, which are those of all words."""
        new = self.weights[:1].expand(words - len(self.weights) + 2, -1)
        return replace(self, weights=torch.cat([self.weights[:-1], new, self.weights[-1:]]))

    def new_counts(self) -> JumpCounts:
        """Counts of zero."""
        return JumpCounts(torch.zeros_like(self.weights), torch.zeros_like(self.weights))

    def add_counts(
        self,
        counts: JumpCounts,
        batch: PairBatch,
        moves: Float[Tensor, "pair before position"],
        expected: Float[Tensor, "pair before position"],
    ) -> None:
        """Adds the expected moves of a batch to counts.

        Args:
            counts: The counts.
            batch: The sentence pairs.
            moves: Their transition probabilities.
            expected: Their expected moves.
        """
        rows, columns = self.rows(batch), self.distances(moves.shape[-1])
        cells = (rows[:, :, None].long() * self.weights.shape[-1] + columns).flatten()
        counts.taken.view(-1).scatter_add_(0, cells, expected.flatten())
        offered = moves * (expected.sum(-1, keepdim=True) / (1 - self.null_probability))
        counts.offered.view(-1).scatter_add_(0, cells, offered.flatten())

    def update(self, counts: JumpCounts) -> Jumps:
        """The weights after an M step.

        The likelihood of jumps that are normalised over the positions of a sentence has no closed
        maximum: each weight is multiplied by the ratio of its two counts, as in generalised
        iterative scaling. Without smoothing this never lowers the likelihood of the counts. With
        it, the step is one towards the mode of a posterior, whose gamma prior has its mode at the
        weights of all words; as these move in each step too, neither is sure to rise.
        """
        shared = self.weights[0] * counts.taken.sum(0) / counts.offered.sum(0).clamp(min=1e-9)
        shared = (shared / shared.sum()).clamp(min=1e-6)
        departures = counts.offered / self.weights
        smoothing = max(self.smoothing, LEAST_SMOOTHING)
        weights = (counts.taken + smoothing * shared) / (departures + smoothing)
        weights[0] = shared
        return replace(self, weights=weights.clamp(min=LEAST_WEIGHT))


def initial_jumps(
    words: int,
    null_probability: float,
    smoothing: float,
    dtype: torch.dtype | None = None,
) -> Jumps:
    """Weights that fall with the distance from the next position.

    Args:
        words: Number of source words.
        null_probability: The probability of null.
        smoothing: Jumps of all words that are added to those of each.
        dtype: The type of the weights; None: torch's default.
    """
    distance = torch.arange(-MAX_JUMP, MAX_JUMP + 1, dtype=dtype) - 1
    weights = (-0.5 * distance.abs()).exp()
    return Jumps((weights / weights.sum()).repeat(words + 2, 1), null_probability, smoothing)
