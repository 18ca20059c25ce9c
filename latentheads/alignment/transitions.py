r"""How a chain of alignments moves from word to word: its marginals, its entropy, its KL.

.. math:: p(z_t = s \mid z_{t-1} = s') \propto \exp(c_{ts} + r_t(s', s))

Where all words have the same r, sums over positions are matrix products, and nothing of size
``target before key`` is made.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from latentheads.layers.numeric import exp, log_softmax

__all__ = ["SharedTransitions", "Transitions", "WordTransitions", "later_steps", "times"]

LEAST = -200.0
"""How much less likely than another the word before makes a position, in nats, at most.

Gradients have cubes of such numbers, and float64 ends at e^-745.
"""


def later_steps(
    steps: Float[Tensor, "*batch #target before key"],
) -> Float[Tensor, "*batch #later before key"]:
    """What every word but the first reads of the one before."""
    return steps[..., 1:, :, :] if steps.shape[-3] > 1 else steps


def times(row: Tensor, matrix: Tensor) -> Tensor:
    """A row times a matrix, both of a batch or the matrix for all of it."""
    return (row[..., None, :] @ matrix)[..., 0, :]


class Transitions(ABC):
    """What is computed of a chain, word by word."""

    @property
    @abstractmethod
    def marginals(self) -> Float[Tensor, "*batch target key"]:
        """The probability of every position of each word, whatever the others'."""

    @property
    @abstractmethod
    def entropy(self) -> Float[Tensor, "*batch target"]:
        """The mean entropy of each word's position given the one before."""

    @abstractmethod
    def kl(self, other: Transitions) -> Float[Tensor, "*batch target"]:
        """The mean KL to another chain, in the same form, of each word given the one before."""


class SharedTransitions(Transitions):
    r"""A chain whose words share a matrix: what is summed over positions is a matrix product.

    .. math:: p(z_t = s \mid z_{t-1} = s') = \frac{R(s', s) v_t(s)}{\sum_k R(s', k) v_t(k)},
              \qquad R = e^{r}, \quad v_t = e^{c_t}

    Nothing of size ``target before key`` is made. It is all in float64, so that what is nearly
    impossible stays above 0.

    Args:
        scores: Those of every word's positions, c.
        steps: What a word reads of the one before, r.

    Attributes:
        scores: Those of every word's positions, c, the largest 0.
        steps: What a word reads of the one before, r, the largest of each row 0: what a row has in
            common cancels.
    """

    def __init__(
        self,
        scores: Float[Tensor, "*batch target key"],
        steps: Float[Tensor, "*#batch 1 before key"],
    ) -> None:
        scores, steps = scores.double(), steps[..., 0, :, :].double()
        self.scores = scores - scores.detach().amax(-1, keepdim=True)
        self.steps = (steps - steps.detach().amax(-1, keepdim=True)).clamp(min=LEAST)

    @cached_property
    def weights(self) -> Float[Tensor, "*batch target key"]:
        """What every word's positions weigh, whatever came before: v."""
        return exp(self.scores)

    @cached_property
    def moves(self) -> Float[Tensor, "*#batch before key"]:
        """What every pair of positions weighs: R."""
        return exp(self.steps)

    @cached_property
    def first_total(self) -> Float[Tensor, "*batch 1"]:
        """The sum of the weights of the first word's positions."""
        return self.weights[..., 0, :].sum(-1, keepdim=True)

    @cached_property
    def totals(self) -> Float[Tensor, "*batch later before"]:
        """The sum of the weights of each later word's positions, by the position before."""
        return self.weights[..., 1:, :] @ self.moves.mT

    def word_by_word(
        self, values: Float[Tensor, "*batch target key"]
    ) -> list[tuple[Float[Tensor, "*batch before"], Float[Tensor, "*batch key"]]]:
        """Of every word but the first, its totals and its part of some values."""
        each = self.totals.unbind(-2), values[..., 1:, :].unbind(-2)
        return list(zip(*each, strict=True))

    @cached_property
    def marginals(self) -> Float[Tensor, "*batch target key"]:
        """A product of the matrix for every word."""
        found = [self.weights[..., 0, :] / self.first_total]
        for totals, weights in self.word_by_word(self.weights):
            found.append(times(found[-1] / totals, self.moves) * weights)
        return torch.stack(found, -2)

    @property
    def entropy(self) -> Float[Tensor, "*batch target"]:
        """The mean entropy of each word's position given the one before."""
        return -self.mean_log_prob(self)

    def kl(self, other: Transitions) -> Float[Tensor, "*batch target"]:
        """The mean KL to another chain of each word's position given the one before."""
        assert isinstance(other, SharedTransitions)
        return self.mean_log_prob(self) - self.mean_log_prob(other)

    def mean_log_prob(self, other: SharedTransitions) -> Float[Tensor, "*batch target"]:
        """The mean over this chain of the log-probability of every word's position in another."""
        place = (self.marginals * other.scores).sum(-1)
        read = self.weights[..., 1:, :] @ (self.moves * other.steps).mT
        left = (self.marginals[..., :-1, :] * (read / self.totals - other.totals.log())).sum(-1)
        return torch.cat([place[..., :1] - other.first_total.log(), place[..., 1:] + left], -1)


class WordTransitions(Transitions):
    """A chain whose words have a matrix each: the probabilities of all their pairs are made.

    Args:
        scores: Those of every word's positions.
        steps: What every word reads of the one before.

    Attributes:
        first: Log-probabilities of the first word's positions.
        later: Those of every later word's, by the position before.
    """

    def __init__(
        self,
        scores: Float[Tensor, "*batch target key"],
        steps: Float[Tensor, "*#batch #target before key"],
    ) -> None:
        self.first = log_softmax(scores[..., 0, :])
        self.later = log_softmax(scores[..., 1:, None, :] + later_steps(steps))

    @cached_property
    def moves(self) -> Float[Tensor, "*batch later before key"]:
        """The probabilities of every later word's positions, by the position before."""
        return exp(self.later)

    @cached_property
    def marginals(self) -> Float[Tensor, "*batch target key"]:
        """A product of another matrix for every word."""
        found = [exp(self.first)]
        with torch.autocast(found[0].device.type, enabled=False):  # it would narrow the products
            # a view of one matrix at a time would be given a gradient as large as all of them
            for moves in self.moves.unbind(-3):
                found.append(times(found[-1], moves))
        return torch.stack(found, -2)

    @property
    def entropy(self) -> Float[Tensor, "*batch target"]:
        """The mean entropy of each word's position given the one before."""
        return -self._mean(self.first, self.later)

    def kl(self, other: Transitions) -> Float[Tensor, "*batch target"]:
        """The mean KL to another chain of each word's position given the one before."""
        assert isinstance(other, WordTransitions)
        return self._mean(self.first - other.first, self.later - other.later)

    def _mean(self, first: Tensor, later: Tensor) -> Float[Tensor, "*batch target"]:
        """The mean of what the first word has, and of what each later one has by pairs."""
        here = (exp(self.first) * first).sum(-1, keepdim=True)
        pairs = (self.marginals[..., :-1, :] * (self.moves * later).sum(-1)).sum(-1)
        return torch.cat([here, pairs], -1)
