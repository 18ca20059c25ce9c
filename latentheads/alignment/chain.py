r"""Alignments in a chain: a word's position given that of the word before.

.. math:: p(z_t = s \mid z_{t-1} = s') \propto \exp(c_{ts} + r_t(s', s))

The prior has :math:`r(s', s) = J[s - s']`, a number for each jump up to a width, so that it learns
how an alignment moves on. Log p(y | x) is the forward algorithm, the exact posterior a chain of the
same form whose :math:`r_t` the backward algorithm gives. Hidden Markov alignments: Vogel et al.
1996, https://aclanthology.org/C96-2141; in a neural network Wu and Cotterell 2019,
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

from latentheads.alignment.law import Pair, Pointing
from latentheads.alignment.summed import Summed
from latentheads.layers.numeric import log_softmax

__all__ = ["ChainPointing", "SummedChain"]


@dataclass(frozen=True)
class ChainPointing(Pointing):
    """The parameters of a chain over the words of a sentence, for one head.

    Attributes:
        steps: What a word reads of the one before: its position, then the word's own.
    """

    chained: ClassVar[bool] = True
    steps: Float[Tensor, "*batch #target before key"] = field(kw_only=True)

    @property
    def between(self) -> Mapping[Pair, Float[Tensor, "*batch #target before key"]]:
        """What is read of the word before."""
        return {(self.first, self.first): self.steps}

    def detached(self) -> ChainPointing:
        """The same parameters, detached from their graph."""
        return replace(self, scores=self.scores.detach(), steps=self.steps.detach())

    @property
    def transitions(self) -> Float[Tensor, "*batch later before key"]:
        """Log-probabilities of every further word's positions, given the one before."""
        steps = self.steps[..., 1:, :, :] if self.steps.shape[-3] > 1 else self.steps
        return log_softmax(self.scores[..., 1:, 0, None, :] + steps)

    @property
    def marginals(self) -> Float[Tensor, "*batch target head key"]:
        """The probability of every position of each word, whatever the others'."""
        found = [self.start]
        # a view of one step at a time would be given a gradient as large as all of them
        for steps in self.transitions.unbind(-3):
            found.append((found[-1][..., None] + steps).logsumexp(-2))
        return torch.stack(found, -2).exp().unsqueeze(-2)

    def word_log_prob(
        self, drawn: Int[Tensor, "*draw target head"]
    ) -> Float[Tensor, "*out target"]:
        """Log-probability of each word's alignment given the one before."""
        place = drawn[..., 0]
        start = self.start.expand(*place.shape[:-1], -1).gather(-1, place[..., :1])
        steps = self.transitions
        steps = steps.expand(*place.shape[:-1], *steps.shape[-3:])
        before = place[..., :-1, None, None].expand(*place[..., 1:].shape, 1, steps.shape[-1])
        rows = steps.gather(-2, before)[..., 0, :]
        return torch.cat([start, rows.gather(-1, place[..., 1:, None])[..., 0]], -1)

    def walk(
        self, below: Int[Tensor, "*draw target lower"], choose: Callable[[Tensor], Tensor]
    ) -> Int[Tensor, "*draw target head"]:
        """Chooses the position of word after word, each by its law given the one before."""
        shape, steps = below.shape[:-2], self.transitions
        steps = steps.expand(*shape, *steps.shape[-3:])
        places = [choose(self.start.expand(*shape, -1))]
        for step in steps.unbind(-3):
            before = places[-1][..., None, None].expand(*shape, 1, steps.shape[-1])
            places.append(choose(step.gather(-2, before)[..., 0, :]))
        return torch.stack(places, -1)[..., None]


class SummedChain(Summed):
    """All alignments of a batch at once, where each word's reads the one before, for one head."""

    @cached_property
    def _counted(self) -> Float[Tensor, "*batch target key"]:
        """Log-probabilities of the words, 0 at padding: padding changes no sum."""
        return self.words * self.valid[..., None]

    @cached_property
    def _forward(self) -> list[Float[Tensor, "*batch key"]]:
        r""":math:`\log p(y_{\le t}, z_t)` of every word."""
        (prior,) = self.priors
        first, *later = self._counted.unbind(-2)
        found = [prior.start + first]
        for steps, own in zip(prior.transitions.unbind(-3), later, strict=True):
            found.append((found[-1][..., None] + steps).logsumexp(-2) + own)
        return found

    @property
    def log_evidence(self) -> Float[Tensor, "*batch"]:
        """Exact log p(y | x) of every sentence, in nats: the forward algorithm."""
        return self._forward[-1].logsumexp(-1)

    @cached_property
    def log_evidence_of_words(self) -> Float[Tensor, "*batch target"]:
        """Exact log-probability of every word given those before, 0 at padding."""
        totals = torch.stack([each.logsumexp(-1) for each in self._forward], -1)
        before = torch.nn.functional.pad(totals[..., :-1], (1, 0))
        return (totals - before) * self.valid

    def posterior(self) -> list[Pointing]:
        """The exact posterior, itself a chain: the backward algorithm."""
        (prior,) = self.priors
        start, (first, *counted) = prior.start, self._counted.unbind(-2)
        later = torch.zeros_like(first)
        scores, moves = list[Tensor](), list(prior.transitions.unbind(-3))[::-1]
        for steps, own in zip(moves, counted[::-1], strict=True):
            scores.append(own + later)
            later = (steps + scores[-1][..., None, :]).logsumexp(-1)
        scores.append(start + first + later)
        moves.append(start.new_zeros(*start.shape, start.shape[-1]))
        own = torch.stack(scores[::-1], -2)
        return [ChainPointing(own.unsqueeze(-2), steps=torch.stack(moves[::-1], -3))]

    def expected(self, posterior: Sequence[Pointing]) -> Float[Tensor, "*batch"]:
        """E log p(y | z, x) under a posterior, of every sentence."""
        (law,) = posterior
        return (law.marginals[..., 0, :] * self._counted).sum((-1, -2))

    def _entropy(self, laws: Sequence[Pointing]) -> Float[Tensor, "*batch"]:
        """That of the first position, and the mean of that of every step."""
        (law,) = laws
        start, steps = law.start, law.transitions
        return -self._mean(law, (start.exp() * start).sum(-1), (steps.exp() * steps).sum(-1))

    def _kl(
        self, laws: Sequence[Pointing], others: Sequence[Pointing]
    ) -> list[Float[Tensor, "*batch"]]:
        (law,), (other,) = laws, others
        first, steps = law.start, law.transitions
        start = (first.exp() * (first - other.start)).sum(-1)
        return [self._mean(law, start, (steps.exp() * (steps - other.transitions)).sum(-1))]

    def _mean(
        self,
        law: Pointing,
        start: Float[Tensor, "*batch"],
        steps: Float[Tensor, "*batch later key"],
    ) -> Float[Tensor, "*batch"]:
        """What the first word has, and the mean of what each other has given the one before."""
        before = law.marginals[..., :-1, 0, :]
        further = (before * steps).sum(-1) * self.valid[..., 1:]
        return start * self.valid[..., 0] + further.sum(-1)
