r"""Alignments summed out: the exact evidence, the exact posterior, and every guide's bound and gap.

Words are independent given the states of the network, for nothing reads an alignment but its own
word. So with the table :math:`\ell_t(z) = \log p(y_t \mid t, z)` of one or two heads,

.. math:: \log p(y \mid x) = \sum_t \log \sum_z p_t(z) e^{\ell_t(z)}, \qquad
          p_t(z \mid y) \propto p_t(z) e^{\ell_t(z)},

and the bound of a guide is a sum too, without a single draw:
:math:`\sum_t \sum_z q_t(z) (\ell_t(z) + \log p_t(z) - \log q_t(z))`. What it lacks is exactly
:math:`\sum_t \mathrm{KL}(q_t \,\|\, p_t(\cdot \mid y))`, its gap.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from latentheads.alignment.distribution import CategoricalParameters
from latentheads.layers.numeric import exp, log_softmax

__all__ = ["ExactInference", "IndependentWords", "block_tables", "sum_of"]


def block_tables(
    pointings: Sequence[CategoricalParameters],
) -> list[Float[Tensor, "*table"]]:
    """Log-probabilities of each block's alignments, for all positions of all heads.

    Args:
        pointings: A law of every block, from the lowest.
    """
    heads = sum(len(each.heads) for each in pointings)
    return [sum_of([each.table(head, heads) for head in each.heads]) for each in pointings]


def sum_of(tables: Sequence[Tensor]) -> Tensor:
    """Their sum, of all shapes together."""
    found = tables[0]
    for table in tables[1:]:
        found = found + table
    return found


@dataclass(frozen=True)
class ExactInference(ABC):
    """All alignments of a batch at once, under the model's prior.

    Attributes:
        priors: The prior of every block, from the lowest.
        words: Log-probability of every word for all positions of all heads.
        valid: True at the words that are counted; padding follows them.
    """

    priors: Sequence[CategoricalParameters]
    words: Float[Tensor, "*table"]
    valid: Bool[Tensor, "*batch target"]

    @property
    @abstractmethod
    def log_evidence_of_words(self) -> Float[Tensor, "*batch target"]:
        """Exact log-probability of every word given those before, 0 at padding."""

    @property
    def log_evidence(self) -> Float[Tensor, "*batch"]:
        """Exact log p(y | x) of every sentence, in nats."""
        return self.log_evidence_of_words.sum(-1)

    @abstractmethod
    def posterior(self) -> list[CategoricalParameters]:
        """The exact posterior of every block, given what lies below."""

    @property
    def prior_entropy(self) -> Float[Tensor, "*batch"]:
        """Entropy of the alignments of a sentence under the prior."""
        return self._entropy(self.priors)

    @property
    def posterior_entropy(self) -> Float[Tensor, "*batch"]:
        """Entropy of the alignments of a sentence given its words."""
        return self._entropy(self.posterior())

    @property
    def information(self) -> Float[Tensor, "*batch"]:
        """KL from the exact posterior to the prior: what the words say of their alignments."""
        return sum_of(self.kl(self.posterior()))

    @abstractmethod
    def expected(self, posterior: Sequence[CategoricalParameters]) -> Float[Tensor, "*batch"]:
        """E log p(y | z, x) under a posterior, of every sentence."""

    def kl(self, posterior: Sequence[CategoricalParameters]) -> list[Float[Tensor, "*batch"]]:
        """The KL of every block from a posterior to the prior, a mean over the blocks below."""
        return self._kl(posterior, self.priors)

    def gap(self, posterior: Sequence[CategoricalParameters]) -> list[Float[Tensor, "*batch"]]:
        """The KL of every block from a posterior to the exact one: what the bound lacks."""
        return self._kl(posterior, self.posterior())

    @abstractmethod
    def _entropy(self, laws: Sequence[CategoricalParameters]) -> Float[Tensor, "*batch"]:
        """Entropy of the alignments of a sentence, all blocks together."""

    @abstractmethod
    def _kl(
        self, laws: Sequence[CategoricalParameters], others: Sequence[CategoricalParameters]
    ) -> list[Float[Tensor, "*batch"]]:
        """The KL of every block from a law to another."""


class IndependentWords(ExactInference):
    """All alignments of a batch at once, where words stand apart: each is a sum of its own."""

    @cached_property
    def log_priors(self) -> list[Float[Tensor, "*table"]]:
        """Log-probabilities under the prior of every block."""
        return block_tables(self.priors)

    @cached_property
    def log_joint(self) -> Float[Tensor, "*table"]:
        """Log-probability of alignments and word together."""
        return self.words + sum_of(self.log_priors)

    @property
    def _first(self) -> int:
        """The dimension of the first head's positions."""
        return self.valid.ndim

    @cached_property
    def log_evidence_of_words(self) -> Float[Tensor, "*batch target"]:
        """Exact log-probability of every word, 0 at padding."""
        return self.log_joint.flatten(self._first).logsumexp(-1) * self.valid

    @cached_property
    def log_posterior(self) -> Float[Tensor, "*table"]:
        """Log-probability of the alignments of all heads, given the word."""
        flat = self.log_joint.flatten(self._first)
        return log_softmax(flat).view_as(self.log_joint)

    def posterior(self) -> list[CategoricalParameters]:
        """The exact posterior of every block, given what lies below: Bayes' rule."""
        joint = self.log_posterior
        if len(self.priors) == 1 and len(self.priors[0].heads) == 1:
            return [CategoricalParameters(joint.unsqueeze(-2))]
        first, pair = joint.logsumexp(-1), {(1, 0): joint}
        own = torch.zeros_like(joint[..., 0, :])
        if len(self.priors) == 1:
            return [CategoricalParameters(torch.stack([first, own], -2), pair)]
        return [
            CategoricalParameters(first.unsqueeze(-2)),
            CategoricalParameters(own.unsqueeze(-2), pair, 1),
        ]

    def expected(self, posterior: Sequence[CategoricalParameters]) -> Float[Tensor, "*batch"]:
        """E log p(y | z, x) under a posterior, of every sentence."""
        weights = exp(sum_of(block_tables(posterior)))
        return self._total(weights * self.words)

    def _entropy(self, laws: Sequence[CategoricalParameters]) -> Float[Tensor, "*batch"]:
        table = sum_of(self._tables(laws)).expand_as(self.words)
        return -self._total(exp(table) * table)

    def _kl(
        self, laws: Sequence[CategoricalParameters], others: Sequence[CategoricalParameters]
    ) -> list[Float[Tensor, "*batch"]]:
        tables = self._tables(laws)
        weights = exp(sum_of(tables))
        pairs = zip(tables, self._tables(others), strict=True)
        return [self._total(weights * (table - against)) for table, against in pairs]

    def _tables(self, laws: Sequence[CategoricalParameters]) -> list[Float[Tensor, "*table"]]:
        """Those of each block's alignments; of the prior they are made once."""
        return self.log_priors if laws is self.priors else block_tables(laws)

    def _total(self, values: Float[Tensor, "*table"]) -> Float[Tensor, "*batch"]:
        """Sums over positions and over the words that are counted."""
        return (values.flatten(self._first).sum(-1) * self.valid).sum(-1)
