r"""Transitions of a Markov chain of alignments: its marginals, entropy and KL.

.. math:: p(z_t = s \mid z_{t-1} = s') \propto \exp(c_{ts} + r_t(s', s))

If all words share r, sums over positions are matrix products, and no tensor of shape
``target before key`` is needed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from latentheads.layers.numeric import exp, log_softmax

MIN_TRANSITION_SCORE = -200.0
"""Transition scores are clamped to this, relative to the maximum of their row.

Gradients contain cubes of their exponentials, and float64 underflows at e^-745.
"""


def later_transitions(
    transition_scores: Float[Tensor, "*batch #target before key"],
) -> Float[Tensor, "*batch #later before key"]:
    """The transition scores of every word but the first."""
    return (
        transition_scores[..., 1:, :, :] if transition_scores.shape[-3] > 1 else transition_scores
    )


def vecmat(row: Tensor, matrix: Tensor) -> Tensor:
    """Batched vector-matrix product; the matrix may be shared by the batch."""
    return (row[..., None, :] @ matrix)[..., 0, :]


class Transitions(ABC):
    """A Markov chain over the words of a sentence."""

    @property
    @abstractmethod
    def marginals(self) -> Float[Tensor, "*batch target key"]:
        """The marginal probability of every position of each word."""

    @property
    @abstractmethod
    def entropy(self) -> Float[Tensor, "*batch target"]:
        """The expected entropy of each word's position given the previous one."""

    @abstractmethod
    def kl(self, other: Transitions) -> Float[Tensor, "*batch target"]:
        """The expected KL to another chain of the same class, of each word given the previous."""


class SharedTransitions(Transitions):
    r"""A chain whose words share a transition matrix: sums over positions are matrix products.

    .. math:: p(z_t = s \mid z_{t-1} = s') = \frac{R(s', s) v_t(s)}{\sum_k R(s', k) v_t(k)},
              \qquad R = e^{r}, \quad v_t = e^{c_t}

    Everything is float64, so that nearly impossible positions keep a positive probability.

    Args:
        scores: Scores of every word's positions, c.
        transition_scores: Scores of transitions, r.

    Attributes:
        scores: c, shifted so that the maximum is 0.
        transition_scores: r, shifted so that the maximum of each row is 0; the shift cancels.
    """

    def __init__(
        self,
        scores: Float[Tensor, "*batch target key"],
        transition_scores: Float[Tensor, "*#batch 1 before key"],
    ) -> None:
        scores, transition_scores = scores.double(), transition_scores[..., 0, :, :].double()
        self.scores = scores - scores.detach().amax(-1, keepdim=True)
        self.transition_scores = (
            transition_scores - transition_scores.detach().amax(-1, keepdim=True)
        ).clamp(min=MIN_TRANSITION_SCORE)

    @cached_property
    def weights(self) -> Float[Tensor, "*batch target key"]:
        """Weights of every word's positions: v."""
        return exp(self.scores)

    @cached_property
    def transition_weights(self) -> Float[Tensor, "*#batch before key"]:
        """Weights of transitions: R."""
        return exp(self.transition_scores)

    @cached_property
    def first_normaliser(self) -> Float[Tensor, "*batch 1"]:
        """The sum of the first word's weights."""
        return self.weights[..., 0, :].sum(-1, keepdim=True)

    @cached_property
    def normalisers(self) -> Float[Tensor, "*batch later before"]:
        """The normaliser of each later word, by the previous position."""
        return self.weights[..., 1:, :] @ self.transition_weights.mT

    def later_words(
        self, values: Float[Tensor, "*batch target key"]
    ) -> list[tuple[Float[Tensor, "*batch before"], Float[Tensor, "*batch key"]]]:
        """The normaliser and the values of every word but the first."""
        words = self.normalisers.unbind(-2), values[..., 1:, :].unbind(-2)
        return list(zip(*words, strict=True))

    @cached_property
    def marginals(self) -> Float[Tensor, "*batch target key"]:
        """Marginals word by word: one product with the transition matrix each."""
        marginals = [self.weights[..., 0, :] / self.first_normaliser]
        for normaliser, weights in self.later_words(self.weights):
            marginals.append(vecmat(marginals[-1] / normaliser, self.transition_weights) * weights)
        return torch.stack(marginals, -2)

    @property
    def entropy(self) -> Float[Tensor, "*batch target"]:
        return -self.mean_log_prob(self)

    def kl(self, other: Transitions) -> Float[Tensor, "*batch target"]:
        assert isinstance(other, SharedTransitions)
        return self.mean_log_prob(self) - self.mean_log_prob(other)

    def mean_log_prob(self, other: SharedTransitions) -> Float[Tensor, "*batch target"]:
        """The expectation under this chain of another's log-probability of each word's position."""
        unary = (self.marginals * other.scores).sum(-1)
        # sum_s R(s', s) v(s) r(s', s) with the other's r: by the normaliser of s' a mean of r
        weighted_scores = self.transition_weights * other.transition_scores
        transition_sums = self.weights[..., 1:, :] @ weighted_scores.mT
        given_previous = transition_sums / self.normalisers - other.normalisers.log()
        pairwise = (self.marginals[..., :-1, :] * given_previous).sum(-1)
        first = unary[..., :1] - other.first_normaliser.log()
        return torch.cat([first, unary[..., 1:] + pairwise], -1)


class WordTransitions(Transitions):
    """A chain with a transition matrix for each word.

    Attributes:
        initial: Log-probabilities of the first word's positions.
        later: Log-probabilities of every later word's positions, by the previous position.
    """

    def __init__(
        self,
        scores: Float[Tensor, "*batch target key"],
        transition_scores: Float[Tensor, "*#batch #target before key"],
    ) -> None:
        self.initial = log_softmax(scores[..., 0, :])
        self.later = log_softmax(scores[..., 1:, None, :] + later_transitions(transition_scores))

    @cached_property
    def transition_weights(self) -> Float[Tensor, "*batch later before key"]:
        """Probabilities of every later word's positions, by the previous position."""
        return exp(self.later)

    @cached_property
    def marginals(self) -> Float[Tensor, "*batch target key"]:
        """Marginals word by word: one product with each word's matrix."""
        marginals = [exp(self.initial)]
        with torch.autocast(marginals[0].device.type, enabled=False):  # keeps float32 products
            # unbind, since indexing would allocate a gradient of the full size for each word
            for transition_probs in self.transition_weights.unbind(-3):
                marginals.append(vecmat(marginals[-1], transition_probs))
        return torch.stack(marginals, -2)

    @property
    def entropy(self) -> Float[Tensor, "*batch target"]:
        return -self._expectation(self.initial, self.later)

    def kl(self, other: Transitions) -> Float[Tensor, "*batch target"]:
        assert isinstance(other, WordTransitions)
        return self._expectation(self.initial - other.initial, self.later - other.later)

    def _expectation(self, first: Tensor, later: Tensor) -> Float[Tensor, "*batch target"]:
        """Expectation of values of the first word and of values of later words' transitions."""
        first_term = (exp(self.initial) * first).sum(-1, keepdim=True)
        pairs = (self.marginals[..., :-1, :] * (self.transition_weights * later).sum(-1)).sum(-1)
        return torch.cat([first_term, pairs], -1)
