r"""Alignments in a chain: a word's position given that of the word before.

.. math:: p(z_t = s \mid z_{t-1} = s') \propto \exp(c_{ts} + r_t(s', s))

The prior has :math:`r(s', s) = J[s - s']`, a number for each jump up to a width, so that it learns
how an alignment moves on. Log p(y | x) is the forward algorithm, the exact posterior a chain of the
same form whose :math:`r_t` the backward algorithm gives. Hidden Markov alignments: Vogel et al.
1996, https://aclanthology.org/C96-2141; in a neural network Wu and Cotterell 2019,
https://arxiv.org/abs/1905.06319.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentheads.alignment.law import Alignments, Pointing, draw_place
from latentheads.layers.numeric import log_softmax

__all__ = [
    "ChainAlignments",
    "ChainPointing",
    "SummedChain",
    "detached",
    "draw_blocks",
    "law_of",
    "word_log_probs",
]


@dataclass(frozen=True)
class ChainPointing(Pointing):
    """The parameters of a chain over the words of a sentence, for one head.

    Attributes:
        steps: What a word reads of the one before: its position, then the word's own.
    """

    steps: Float[Tensor, "*batch #target before key"] | None = None

    @property
    def start(self) -> Float[Tensor, "*batch key"]:
        """Log-probabilities of the first word's positions."""
        return self.scores[..., 0, 0, :].log_softmax(-1)

    @property
    def transitions(self) -> Float[Tensor, "*batch later before key"]:
        """Log-probabilities of every further word's positions, given the one before."""
        found = transitions(self)
        return found.expand(*found.shape[:-2], found.shape[-1], -1)


def transitions(pointing: Pointing) -> Float[Tensor, "*batch later #before key"]:
    """The transitions of any law of one head; but for a chain they ignore the word before."""
    scores = pointing.scores[..., 1:, 0, None, :]
    if isinstance(pointing, ChainPointing) and pointing.steps is not None:
        steps = pointing.steps
        scores = scores + (steps[..., 1:, :, :] if steps.shape[-3] > 1 else steps)
    return log_softmax(scores)


def detached(law: Pointing) -> Pointing:
    """The same parameters, detached from their graph."""
    pairs = {pair: scores.detach() for pair, scores in law.pairs.items()}
    found = replace(law, scores=law.scores.detach(), pairs=pairs)
    if isinstance(found, ChainPointing) and found.steps is not None:
        return replace(found, steps=found.steps.detach())
    return found


def law_of(
    pointing: Pointing,
    valid: Bool[Tensor, "*batch target"],
    below: Int[Tensor, "*draw target lower"] | None = None,
    context: Any = None,
) -> Alignments:
    """The law that parameters are of: a chain's, or one whose words stand apart."""
    kind = ChainAlignments if isinstance(pointing, ChainPointing) else Alignments
    return kind(pointing, valid, below, context)


def draw_blocks(
    pointings: Sequence[Pointing], valid: Bool[Tensor, "*batch target"], draws: int
) -> Int[Tensor, "draw *batch target head"]:
    """Draws block after block, each given the draws below it.

    Args:
        pointings: The parameters of every block, from the lowest.
        valid: True at the words that are counted.
        draws: How many.
    """
    first, *above = pointings
    drawn = law_of(first, valid).sample(torch.Size((draws,)))
    for pointing in above:
        drawn = torch.cat([drawn, law_of(pointing, valid, drawn).sample()], -1)
    return drawn


def word_log_probs(
    pointings: Sequence[Pointing],
    valid: Bool[Tensor, "*batch target"],
    drawn: Int[Tensor, "draw *batch target head"],
) -> Float[Tensor, "draw *batch target"]:
    """Log-probability of every word's alignments, those of some blocks together; 0 at padding."""
    found = []
    for pointing in pointings:
        law = law_of(pointing, valid, drawn[..., : pointing.first])
        own = drawn[..., pointing.first : pointing.first + len(pointing.heads)]
        found.append(law.word_log_prob(own) * valid)
    return torch.stack(found).sum(0)


class ChainAlignments(Alignments):
    """Alignments of one head, each given that of the word before."""

    def word_log_prob(
        self, value: Int[Tensor, "*draw target head"]
    ) -> Float[Tensor, "*out target"]:
        """Log-probability of each word's alignment given the one before."""
        shape = torch.broadcast_shapes((*self.batch_shape, 1), value.shape[:-1])
        place = value[..., 0].expand(shape)
        chain = cast(ChainPointing, self.pointing)
        start = chain.start.expand(*place.shape[:-1], -1).gather(-1, place[..., :1])
        steps = chain.transitions
        steps = steps.expand(*place.shape[:-1], *steps.shape[-3:])
        before = place[..., :-1, None, None].expand(*place[..., 1:].shape, 1, steps.shape[-1])
        rows = steps.gather(-2, before)[..., 0, :]
        return torch.cat([start, rows.gather(-1, place[..., 1:, None])[..., 0]], -1)

    @property
    def mode(self) -> Int[Tensor, "*draw target head"]:
        """Each word's likeliest position, given that of the word before."""
        return self._walk(self.batch_shape, lambda law: law.argmax(-1))

    @torch.no_grad()
    def sample(self, sample_shape: torch.Size = torch.Size()) -> Int[Tensor, "*draw target head"]:
        """Draws word after word."""
        shape = torch.Size(sample_shape) + self.batch_shape
        return self._walk(shape, draw_place)

    def _walk(
        self, shape: torch.Size, choose: Callable[[Tensor], Tensor]
    ) -> Int[Tensor, "*draw target head"]:
        """Chooses the position of each word by its law given the one before."""
        chain = cast(ChainPointing, self.pointing)
        steps = chain.transitions
        steps = steps.expand(*shape, *steps.shape[-3:])
        places = [choose(chain.start.expand(*shape, -1))]
        for step in steps.unbind(-3):
            before = places[-1][..., None, None].expand(*shape, 1, steps.shape[-1])
            places.append(choose(step.gather(-2, before)[..., 0, :]))
        return torch.stack(places, -1)[..., None]


@dataclass(frozen=True)
class SummedChain:
    """All alignments of a batch at once, where each word's reads the one before.

    It answers as :class:`latentheads.alignment.summed.Summed` does.

    Attributes:
        priors: The prior of the only block.
        words: Log-probability of every word for all positions.
        valid: True at the words that are counted; padding follows them.
    """

    priors: Sequence[Pointing]
    words: Float[Tensor, "*batch target key"]
    valid: Bool[Tensor, "*batch target"]

    @cached_property
    def _counted(self) -> Float[Tensor, "*batch target key"]:
        """Log-probabilities of the words, 0 at padding: padding changes no sum."""
        return self.words * self.valid[..., None]

    @cached_property
    def _forward(self) -> list[Float[Tensor, "*batch key"]]:
        r""":math:`\log p(y_{\le t}, z_t)` of every word."""
        prior = cast(ChainPointing, self.priors[0])
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
        prior = cast(ChainPointing, self.priors[0])
        first, *counted = self._counted.unbind(-2)
        later = torch.zeros_like(first)
        scores, moves = list[Tensor](), list(prior.transitions.unbind(-3))[::-1]
        for steps, own in zip(moves, counted[::-1], strict=True):
            scores.append(own + later)
            later = (steps + scores[-1][..., None, :]).logsumexp(-1)
        scores.append(prior.start + first + later)
        moves.append(torch.zeros_like(moves[0]) if moves else _no_steps(prior))
        own = torch.stack(scores[::-1], -2)
        return [ChainPointing(own.unsqueeze(-2), steps=torch.stack(moves[::-1], -3))]

    @property
    def prior_entropy(self) -> Float[Tensor, "*batch"]:
        """Entropy of the alignments of a sentence under the prior."""
        return self._entropy(self.priors[0])

    @property
    def posterior_entropy(self) -> Float[Tensor, "*batch"]:
        """Entropy of the alignments of a sentence given its words."""
        return self._entropy(self.posterior()[0])

    @property
    def information(self) -> Float[Tensor, "*batch"]:
        """KL from the exact posterior to the prior: what the words say of their alignments."""
        return self.kl(self.posterior())[0]

    def _entropy(self, law: Pointing) -> Float[Tensor, "*batch"]:
        """Entropy of a chain: that of the first position, and the mean of that of every step."""
        start, steps = law.scores[..., 0, 0, :].log_softmax(-1), transitions(law)
        rows = (steps.exp() * steps).sum(-1)
        further = (marginals(law)[..., :-1, :].exp() * rows).sum(-1) * self.valid[..., 1:]
        return -(start.exp() * start).sum(-1) * self.valid[..., 0] - further.sum(-1)

    def expected(self, posterior: Sequence[Pointing]) -> Float[Tensor, "*batch"]:
        """E log p(y | z, x) under a posterior, of every sentence."""
        (law,) = posterior
        return (marginals(law).exp() * self._counted).sum((-1, -2))

    def kl(self, posterior: Sequence[Pointing]) -> list[Float[Tensor, "*batch"]]:
        """The KL from a posterior to the prior, of the only block."""
        return [self._kl(posterior[0], self.priors[0])]

    def gap(self, posterior: Sequence[Pointing]) -> list[Float[Tensor, "*batch"]]:
        """The KL from a posterior to the exact one: what the bound lacks."""
        return [self._kl(posterior[0], self.posterior()[0])]

    def _kl(self, law: Pointing, other: Pointing) -> Float[Tensor, "*batch"]:
        first, against = (each.scores[..., 0, 0, :].log_softmax(-1) for each in (law, other))
        start = (first.exp() * (first - against)).sum(-1)
        mine, its = transitions(law), transitions(other)
        rows = (mine.exp() * (mine - its)).sum(-1)
        before = marginals(law)[..., :-1, :].exp()
        further = (before * rows).sum(-1) * self.valid[..., 1:]
        return start * self.valid[..., 0] + further.sum(-1)


def _no_steps(prior: ChainPointing) -> Tensor:
    keys = prior.scores.shape[-1]
    return prior.scores.new_zeros(*prior.scores.shape[:-3], keys, keys)


def marginals(law: Pointing) -> Float[Tensor, "*batch target key"]:
    """Log-probability of every word's positions, whatever the others'."""
    found = [law.scores[..., 0, 0, :].log_softmax(-1)]
    # a view of one step at a time would be given a gradient as large as all of them
    for steps in transitions(law).unbind(-3):
        found.append((found[-1][..., None] + steps).logsumexp(-2))
    return torch.stack(found, -2)
