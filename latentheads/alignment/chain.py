r"""Alignments in a chain: a word's position given that of the word before.

.. math:: p(z_t = s \mid z_{t-1} = s') \propto \exp(c_{ts} + r_t(s', s))

The prior has :math:`r(s', s) = J[s - s']`, a number for each jump up to a width, so that it learns
how an alignment moves on. Log p(y | x) is the forward algorithm, and the exact posterior a chain
with the same :math:`r`, whose :math:`c_t` the backward algorithm gives. Hidden Markov alignments:
Vogel et al. 1996, https://aclanthology.org/C96-2141; in a neural network Wu and Cotterell 2019,
https://arxiv.org/abs/1905.06319.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from latentheads.alignment.distribution import CategoricalParameters, Pair
from latentheads.alignment.exact import ExactInference
from latentheads.alignment.transitions import (
    SharedTransitions,
    Transitions,
    WordTransitions,
    later_steps,
    times,
)
from latentheads.layers.numeric import exp, log_softmax

__all__ = ["ChainInference", "ChainParameters"]


@dataclass(frozen=True)
class ChainParameters(CategoricalParameters):
    """The parameters of a chain over the words of a sentence, for one head.

    Attributes:
        steps: What a word reads of the one before: its position, then the word's own; ``NOWHERE``
            where it may not move. One matrix for all words is not copied for each, where all laws
            that are compared have one; in its sums numbers more than 200 below their row's largest
            count as 200 below it.
    """

    chained: ClassVar[bool] = True
    steps: Float[Tensor, "*#batch #target before key"] = field(kw_only=True)

    @property
    def between(self) -> Mapping[Pair, Float[Tensor, "*#batch #target before key"]]:
        """What is read of the word before."""
        return {(self.first, self.first): self.steps}

    @property
    def shared(self) -> bool:
        """Whether all words have the same matrix."""
        return self.steps.shape[-3] == 1

    def transitions(self, shared: bool) -> Transitions:
        """How the chain moves from word to word.

        Args:
            shared: In the form for chains whose words share a matrix; the other is for any chain.
        """
        form = SharedTransitions if shared else WordTransitions
        return form(self.scores[..., 0, :], self.steps)

    def detached(self) -> ChainParameters:
        """The same parameters, detached from their graph."""
        return replace(self, scores=self.scores.detach(), steps=self.steps.detach())

    @property
    def marginals(self) -> Float[Tensor, "*batch target head key"]:
        """The probability of every position of each word, whatever the others'."""
        return self.transitions(self.shared).marginals.to(self.scores.dtype).unsqueeze(-2)

    def word_log_prob(
        self, drawn: Int[Tensor, "*draw target head"]
    ) -> Float[Tensor, "*out target"]:
        """Log-probability of each word's alignment given the one before."""
        place = drawn[..., 0]
        start = self.start.expand(*place.shape[:-1], -1).gather(-1, place[..., :1])
        read = later_steps(self.steps)
        matrices, keys = read.shape[-3], read.shape[-1]
        before = place[..., :-1].unflatten(-1, (matrices, (place.shape[-1] - 1) // matrices))
        rows = read.expand(*before.shape[:-1], *read.shape[-2:])
        rows = rows.gather(-2, before[..., None].expand(*before.shape, keys)).flatten(-3, -2)
        later = log_softmax(self.scores[..., 1:, 0, :] + rows)
        return torch.cat([start, later.gather(-1, place[..., 1:, None])[..., 0]], -1)

    def walk(
        self, below: Int[Tensor, "*draw target lower"], choose: Callable[[Tensor], Tensor]
    ) -> Int[Tensor, "*draw target head"]:
        """Chooses the position of word after word, each by its law given the one before."""
        shape = below.shape[:-2]
        places = [choose(self.start.expand(*shape, -1))]
        for word in range(1, self.scores.shape[-3]):
            read = self.steps[..., min(word, self.steps.shape[-3] - 1), :, :]
            read = read.expand(*shape, *read.shape[-2:])
            before = places[-1][..., None, None].expand(*shape, 1, read.shape[-1])
            row = read.gather(-2, before)[..., 0, :]
            places.append(choose(log_softmax(self.scores[..., word, 0, :] + row)))
        return torch.stack(places, -1)[..., None]


def _as_chain(law: CategoricalParameters) -> ChainParameters:
    """A law whose words do not read each other as a chain: all numbers of its steps are 0."""
    if isinstance(law, ChainParameters):
        return law
    keys = law.scores.shape[-1]
    return ChainParameters(law.scores, steps=law.scores.new_zeros(1, keys, keys))


@dataclass(frozen=True)
class ChainInference(ExactInference):
    """All alignments of a batch at once, where each word's reads the one before, for one head.

    The prior's words share a matrix of steps; a posterior's may have one each.
    """

    def __post_init__(self) -> None:
        if not self._prior_law.shared:
            raise ValueError(
                "steps of a prior must be one matrix for all words, "
                f"got {self._prior_law.steps.shape[-3]}"
            )

    @property
    def _prior_law(self) -> ChainParameters:
        (prior,) = self.priors
        assert isinstance(prior, ChainParameters)
        return prior

    @cached_property
    def _made(self) -> dict[tuple[int, bool, bool], tuple[CategoricalParameters, Transitions]]:
        """The transitions that were made, each with its law, which so keeps its number."""
        return {}

    def _transitions(self, *laws: CategoricalParameters) -> list[Transitions]:
        """Those of some laws, in one form; made once."""
        shared = all(chain.shared for chain in map(_as_chain, laws))
        keys = [(id(law), shared, torch.is_grad_enabled()) for law in laws]
        for key, law in zip(keys, laws, strict=True):
            if key not in self._made:
                self._made[key] = law, _as_chain(law).transitions(shared)
        return [self._made[key][1] for key in keys]

    @cached_property
    def _prior(self) -> SharedTransitions:
        (found,) = self._transitions(*self.priors)
        assert isinstance(found, SharedTransitions)
        return found

    @cached_property
    def _counted(self) -> Float[Tensor, "*batch target key"]:
        """Log-probabilities of the words, 0 at padding: padding changes no sum."""
        return (self.words * self.valid[..., None]).double()

    @cached_property
    def _joint(self) -> Float[Tensor, "*batch target key"]:
        """The scores of positions, given the word that they write."""
        return self._prior.scores + self._counted

    @cached_property
    def _weights(self) -> tuple[Tensor, Tensor]:
        """What positions weigh, given the word that they write, and the logarithm left out."""
        peak = self._joint.detach().amax(-1, keepdim=True)
        return exp(self._joint - peak), peak[..., 0]

    @cached_property
    def log_evidence_of_words(self) -> Float[Tensor, "*batch target"]:
        """Exact log-probability of every word given those before, 0 at padding: forwards."""
        weights, peak = self._weights
        found = weights[..., 0, :] / self._prior.first_total
        sums = [found.sum(-1)]
        for totals, weight in self._prior.word_by_word(weights):
            before = found / (sums[-1][..., None] * totals)
            found = times(before, self._prior.moves) * weight
            sums.append(found.sum(-1))
        return ((torch.stack(sums, -1).log() + peak) * self.valid).to(self.words.dtype)

    @cached_property
    def _posterior(self) -> ChainParameters:
        """The exact posterior: backwards."""
        weights, _ = self._weights
        ahead = [torch.ones_like(weights[..., 0, :])]
        for totals, weight in self._prior.word_by_word(weights)[::-1]:
            found = times(ahead[-1] * weight, self._prior.moves.mT) / totals
            ahead.append(found / found.detach().amax(-1, keepdim=True))
        scores = self._joint + torch.stack(ahead[::-1], -2).log()
        prior = self._prior_law
        return replace(prior, scores=scores.to(prior.scores.dtype).unsqueeze(-2))

    def posterior(self) -> list[CategoricalParameters]:
        """The exact posterior, itself a chain: the prior's steps, and other scores."""
        return [self._posterior]

    def expected(self, posterior: Sequence[CategoricalParameters]) -> Float[Tensor, "*batch"]:
        """E log p(y | z, x) under a posterior, of every sentence."""
        (law,) = self._transitions(*posterior)
        return self._total((law.marginals * self._counted).sum(-1))

    def _entropy(self, laws: Sequence[CategoricalParameters]) -> Float[Tensor, "*batch"]:
        (law,) = self._transitions(*laws)
        return self._total(law.entropy)

    def _kl(
        self, laws: Sequence[CategoricalParameters], others: Sequence[CategoricalParameters]
    ) -> list[Float[Tensor, "*batch"]]:
        law, other = self._transitions(*laws, *others)
        return [self._total(law.kl(other))]

    def _total(self, values: Float[Tensor, "*batch target"]) -> Float[Tensor, "*batch"]:
        """Sums over the words that are counted."""
        return (values * self.valid).sum(-1).to(self.words.dtype)
