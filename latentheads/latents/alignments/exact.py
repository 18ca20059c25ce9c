r"""Exact inference over alignments: the evidence, the posterior, and every guide's bound and gap.

Words are independent given the states of the network, since an alignment affects its own word only.
So with the emissions :math:`\ell_t(z) = \log p(y_t \mid t, z)` of one or two heads,

.. math:: \log p(y \mid x) = \sum_t \log \sum_z p_t(z) e^{\ell_t(z)}, \qquad
          p_t(z \mid y) \propto p_t(z) e^{\ell_t(z)},

and the bound of a guide is a sum too, without sampling:
:math:`\sum_t \sum_z q_t(z) (\ell_t(z) + \log p_t(z) - \log q_t(z))`. Its gap to the evidence is
:math:`\sum_t \mathrm{KL}(q_t \,\|\, p_t(\cdot \mid y))`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from latentheads.latents.alignments.distribution import CategoricalParameters
from latentheads.layers.numeric import exp, log_softmax


def block_log_probs(
    parameters: Sequence[CategoricalParameters],
) -> list[Float[Tensor, "*table"]]:
    """Log-probabilities of each block's alignments, for all positions of all heads."""
    heads = sum(len(block.heads) for block in parameters)
    return [
        broadcast_sum([block.log_prob_table(head, heads) for head in block.heads])
        for block in parameters
    ]


def broadcast_sum(tensors: Sequence[Tensor]) -> Tensor:
    """The sum of tensors, broadcast against each other."""
    total = tensors[0]
    for tensor in tensors[1:]:
        total = total + tensor
    return total


@dataclass(frozen=True)
class ExactInference(ABC):
    """Exact inference over all alignments of a batch, under the model's prior.

    Attributes:
        priors: The prior of every block, from the lowest.
        emissions: Log-probability of every target token for all positions of all heads.
        valid: True at real tokens; padding is on the right.
    """

    priors: Sequence[CategoricalParameters]
    emissions: Float[Tensor, "*table"]
    valid: Bool[Tensor, "*batch target"]

    @property
    @abstractmethod
    def word_log_evidence(self) -> Float[Tensor, "*batch target"]:
        """Exact log-probability of every token given those before, 0 at padding."""

    @property
    def log_evidence(self) -> Float[Tensor, "*batch"]:
        """Exact log p(y | x) of every sentence, in nats."""
        return self.word_log_evidence.sum(-1)

    @abstractmethod
    def posterior(self) -> list[CategoricalParameters]:
        """The exact posterior of every block, given the lower blocks."""

    @property
    def prior_entropy(self) -> Float[Tensor, "*batch"]:
        """Entropy of the alignments of a sentence under the prior."""
        return self._entropy(self.priors)

    @property
    def posterior_entropy(self) -> Float[Tensor, "*batch"]:
        """Entropy of the alignments of a sentence given its target."""
        return self._entropy(self.posterior())

    @property
    def information(self) -> Float[Tensor, "*batch"]:
        """KL from the exact posterior to the prior: the information gain from the target."""
        return broadcast_sum(self.kl(self.posterior()))

    @property
    def prior_gap(self) -> Float[Tensor, "*batch"]:
        """KL from the prior to the exact posterior: the gap of the bound of guide tied."""
        return broadcast_sum(self.gap(self.priors))

    @abstractmethod
    def expected_log_likelihood(
        self, posterior: Sequence[CategoricalParameters]
    ) -> Float[Tensor, "*batch"]:
        """E log p(y | z, x) of every sentence under a posterior."""

    def kl(self, posterior: Sequence[CategoricalParameters]) -> list[Float[Tensor, "*batch"]]:
        """The KL of every block from a posterior to the prior, in expectation over lower blocks."""
        return self._kl(posterior, self.priors)

    def gap(self, posterior: Sequence[CategoricalParameters]) -> list[Float[Tensor, "*batch"]]:
        """The KL of every block from a posterior to the exact one: the gap of the bound."""
        return self._kl(posterior, self.posterior())

    @abstractmethod
    def _entropy(self, parameters: Sequence[CategoricalParameters]) -> Float[Tensor, "*batch"]:
        """Joint entropy of the alignments of a sentence, over all blocks."""

    @abstractmethod
    def _kl(
        self, q: Sequence[CategoricalParameters], p: Sequence[CategoricalParameters]
    ) -> list[Float[Tensor, "*batch"]]:
        """The KL of every block from q to p."""


class IndependentWords(ExactInference):
    """Exact inference where words are independent: one sum for each word."""

    @cached_property
    def log_priors(self) -> list[Float[Tensor, "*table"]]:
        """Log-probabilities under the prior of every block."""
        return block_log_probs(self.priors)

    @cached_property
    def log_joint(self) -> Float[Tensor, "*table"]:
        """Joint log-probability of alignments and token."""
        return self.emissions + broadcast_sum(self.log_priors)

    @property
    def _first(self) -> int:
        """The dimension of the first head's positions."""
        return self.valid.ndim

    @cached_property
    def word_log_evidence(self) -> Float[Tensor, "*batch target"]:
        """Exact log-probability of every token, 0 at padding."""
        return self.log_joint.flatten(self._first).logsumexp(-1) * self.valid

    @cached_property
    def log_posterior(self) -> Float[Tensor, "*table"]:
        """Log-probability of the alignments of all heads, given the token."""
        flat = self.log_joint.flatten(self._first)
        return log_softmax(flat).view_as(self.log_joint)

    def posterior(self) -> list[CategoricalParameters]:
        """The exact posterior of every block, given the lower blocks: Bayes' rule."""
        joint = self.log_posterior
        if len(self.priors) == 1 and len(self.priors[0].heads) == 1:
            return [CategoricalParameters(joint.unsqueeze(-2))]
        first, pair = joint.logsumexp(-1), {(1, 0): joint}
        zeros = torch.zeros_like(joint[..., 0, :])
        if len(self.priors) == 1:
            return [CategoricalParameters(torch.stack([first, zeros], -2), pair)]
        return [
            CategoricalParameters(first.unsqueeze(-2)),
            CategoricalParameters(zeros.unsqueeze(-2), pair, 1),
        ]

    def expected_log_likelihood(
        self, posterior: Sequence[CategoricalParameters]
    ) -> Float[Tensor, "*batch"]:
        """E log p(y | z, x) of every sentence under a posterior."""
        weights = exp(broadcast_sum(block_log_probs(posterior)))
        return self._total(weights * self.emissions)

    def _entropy(self, parameters: Sequence[CategoricalParameters]) -> Float[Tensor, "*batch"]:
        log_probs = broadcast_sum(self._block_log_probs(parameters)).expand_as(self.emissions)
        return -self._total(exp(log_probs) * log_probs)

    def _kl(
        self, q: Sequence[CategoricalParameters], p: Sequence[CategoricalParameters]
    ) -> list[Float[Tensor, "*batch"]]:
        log_q = self._block_log_probs(q)
        weights = exp(broadcast_sum(log_q))
        pairs = zip(log_q, self._block_log_probs(p), strict=True)
        return [
            self._total(weights * (block_log_q - block_log_p)) for block_log_q, block_log_p in pairs
        ]

    def _block_log_probs(
        self, parameters: Sequence[CategoricalParameters]
    ) -> list[Float[Tensor, "*table"]]:
        """Log-probabilities of each block's alignments; those of the prior are cached."""
        return self.log_priors if parameters is self.priors else block_log_probs(parameters)

    def _total(self, values: Float[Tensor, "*table"]) -> Float[Tensor, "*batch"]:
        """Sum over positions and real tokens."""
        return (values.flatten(self._first).sum(-1) * self.valid).sum(-1)
