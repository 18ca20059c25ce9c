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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from latentheads.latents.alignments.distribution import CategoricalParameters
from latentheads.latents.alignments.slices import sum_by_words
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
        tables = [self.emissions]
        return terms_of_words(_evidence, [self.priors], tables, self.valid.shape)[0] * self.valid

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
        # given the first head's position, the scores of the second are that row of the joint
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
        """E log p(y | z, x) of every sentence under a posterior; its KLs are kept for later."""
        expected, *kls = self._by_words(_bound_terms, [posterior, self.priors], self.emissions)
        self._kls[id(posterior), torch.is_grad_enabled()] = posterior, kls
        return expected

    @cached_property
    def _kls(
        self,
    ) -> dict[tuple[int, bool], tuple[Sequence[CategoricalParameters], list[Tensor]]]:
        """The KLs to the prior by the id of their posterior, which is kept alive."""
        return {}

    def kl(self, posterior: Sequence[CategoricalParameters]) -> list[Float[Tensor, "*batch"]]:
        key = id(posterior), torch.is_grad_enabled()
        return self._kls[key][1] if key in self._kls else super().kl(posterior)

    def _entropy(self, parameters: Sequence[CategoricalParameters]) -> Float[Tensor, "*batch"]:
        return self._by_words(_entropies, [parameters])[0]

    def _kl(
        self, q: Sequence[CategoricalParameters], p: Sequence[CategoricalParameters]
    ) -> list[Float[Tensor, "*batch"]]:
        return self._by_words(_divergences, [q, p])

    def _by_words(
        self,
        compute: Callable[..., list[Tensor]],
        parameters: Sequence[Sequence[CategoricalParameters]],
        *tables: Float[Tensor, "*table"],
    ) -> list[Float[Tensor, "*batch"]]:
        """Terms of each word, summed over real tokens; no table of all words is made.

        Args:
            compute: Computes terms of some words, from parameters and tables.
            parameters: The parameters that it is given, each of all blocks.
            *tables: The tables that it is given.
        """
        words = terms_of_words(compute, parameters, tables, self.valid.shape)
        return [*(words * self.valid).sum(-1)]


def terms_of_words(
    compute: Callable[..., list[Tensor]],
    parameters: Sequence[Sequence[CategoricalParameters]],
    tables: Sequence[Float[Tensor, "*table"]],
    shape: Sequence[int],
) -> Float[Tensor, term * words]:
    """Terms of each word from parameters and tables, computed for a few words at a time."""
    blocks = [block for part in parameters for block in part]
    by_block = [t for block in blocks for t in (block.scores, *block.pairs.values())]
    # what vectorised particles share has fewer dimensions
    tensors = [t[(None,) * (len(shape) + 2 - t.ndim)] for t in by_block]

    def compute_rows(rows: Sequence[Tensor]) -> Tensor:
        remaining = iter(rows)
        parts = [[block.with_tensors(remaining) for block in part] for part in parameters]
        return torch.stack(compute(*parts, *remaining))

    heads = sum(len(block.heads) for block in parameters[0])
    cells = blocks[0].scores.shape[-1] ** heads
    return sum_by_words(compute_rows, [*tensors, *tables], shape, cells)


def _over_positions(values: Float[Tensor, "sentence target *keys"]) -> Tensor:
    """The sum over the positions of all heads."""
    return values.flatten(2).sum(-1)


def _bound_terms(
    q: Sequence[CategoricalParameters], p: Sequence[CategoricalParameters], emissions: Tensor
) -> list[Tensor]:
    """The expected log-likelihood of each word, and the KL of every block."""
    log_q = block_log_probs(q)
    weights = exp(broadcast_sum(log_q))
    return [_over_positions(weights * emissions), *_divergences_under(weights, log_q, p)]


def _divergences(
    q: Sequence[CategoricalParameters], p: Sequence[CategoricalParameters]
) -> list[Tensor]:
    """The KL of every block, for each word."""
    log_q = block_log_probs(q)
    return _divergences_under(exp(broadcast_sum(log_q)), log_q, p)


def _divergences_under(
    weights: Tensor, log_q: Sequence[Tensor], p: Sequence[CategoricalParameters]
) -> list[Tensor]:
    pairs = zip(log_q, block_log_probs(p), strict=True)
    return [_over_positions(weights * (log_q_of_block - log_p)) for log_q_of_block, log_p in pairs]


def _entropies(q: Sequence[CategoricalParameters]) -> list[Tensor]:
    """The joint entropy of each word's alignments."""
    log_probs = broadcast_sum(block_log_probs(q))
    return [-_over_positions(exp(log_probs) * log_probs)]


def _evidence(p: Sequence[CategoricalParameters], emissions: Tensor) -> list[Tensor]:
    """The log-probability of each token."""
    return [(emissions + broadcast_sum(block_log_probs(p))).flatten(2).logsumexp(-1)]
