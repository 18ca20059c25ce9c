r"""The links of a sentence pair as one Markov chain, with exact sums.

Each target word :math:`t` is linked to a source position :math:`s_t`, or to none: it is then null,
and keeps the position of the word before it, so that the next jump starts there (Och and Ney 2003,
https://aclanthology.org/J03-1002). Position 0 is before the first word. With a
transition matrix :math:`A`, a null probability :math:`p_0` and weights :math:`u`, the chain is

.. math:: q(z) = \frac1Z \prod_t a(z_{t-1}, z_t)\, u_t(z_t), \qquad
          a = \begin{cases} (1 - p_0) A_{s_{t-1} s_t} & \text{linked} \\
                            p_0 [s_t = s_{t-1}] & \text{null.} \end{cases}

Where :math:`u = 1` it is the prior. Where :math:`u_t(z) = p(f_t \mid e_z)` it is the exact
posterior, and :math:`Z = p(f \mid e)`. All sums are computed by the forward and the backward
algorithm with messages that are scaled at every word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import constraints
from torch.distributions.kl import register_kl


@dataclass(frozen=True)
class ChainWeights:
    """The parameters of the links of some sentence pairs.

    Attributes:
        moves: :math:`(1 - p_0) A`: the probability of a link to each position after each; column 0
            is 0. Each row of a position that exists sums to :math:`1 - p_0`.
        null_probability: :math:`p_0`.
        linked: Weights of links to positions 1, 2, ...; 0 where there is no word.
        null: Weights of null, by the position that it keeps; one column if it does not matter.
        mask: Whether there is a target word.
    """

    moves: Float[Tensor, "pair before position"]
    null_probability: float
    linked: Float[Tensor, "pair target source"]
    null: Float[Tensor, "pair target #position"]
    mask: Bool[Tensor, "pair target"]

    @cached_property
    def padded(self) -> tuple[Tensor, Tensor]:
        """Weights of links to positions 0, 1, ..., and those of null times its probability.

        At padding a word is null with probability 1, which changes no sum.
        """
        mask = self.mask[..., None]
        linked = torch.nn.functional.pad(self.linked * mask, (1, 0))
        return linked, torch.where(mask, self.null * self.null_probability, self.null.new_ones(()))


class LinkChain(TorchDistribution):
    """The distribution of the links of some sentence pairs; one value is the links of a sentence.

    A value has a state for each target word: its position, plus the number of positions if it is
    null.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    support = constraints.independent(constraints.nonnegative_integer, 1)

    def __init__(self, weights: ChainWeights) -> None:
        self.weights = weights
        pairs, targets, _ = weights.linked.shape
        super().__init__((pairs,), (targets,), validate_args=False)

    @property
    def positions(self) -> int:
        """Number of positions, with the one before the first word."""
        return self.weights.moves.shape[-1]

    @cached_property
    def _words(self) -> list[tuple[Tensor, Tensor]]:
        """The weights of links and of null of each word, as rows for products with matrices."""
        linked, null = (weights[:, :, None].unbind(1) for weights in self.weights.padded)
        return list(zip(linked, null, strict=True))

    @cached_property
    def _forward(self) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """For each word: sums of prefixes by last position, unscaled those of links, the scale."""
        # rows times transposed matrices are faster than other products
        columns = self.weights.moves.mT.contiguous().mT
        reached = torch.zeros_like(self.weights.moves[:, :1])
        reached[..., 0] = 1
        sums, links, scales = [reached], [], []
        for linked, null in self._words:
            arriving = torch.bmm(reached, columns) * linked
            total = torch.addcmul(arriving, reached, null)
            scale = total.sum(-1, keepdim=True)
            reached = total / scale
            sums.append(reached)
            links.append(arriving)
            scales.append(scale)
        return sums, links, scales

    @cached_property
    def _scales(self) -> Float[Tensor, "pair target 1"]:
        """The scale of each word."""
        return torch.cat(self._forward[2], 1)

    @cached_property
    def _before(self) -> Float[Tensor, "pair target position"]:
        """Scaled sums of prefixes before each word."""
        return torch.cat(self._forward[0][:-1], 1)

    @cached_property
    def _after(self) -> Float[Tensor, "pair target position"]:
        """Scaled sums of suffixes after each word."""
        rows = self.weights.moves.mT
        suffix = torch.ones_like(self.weights.moves[:, :1])
        suffixes = [suffix]
        for (linked, null), scale in zip(self._words[:0:-1], self._forward[2][:0:-1], strict=True):
            suffix = torch.addcmul(torch.bmm(linked * suffix, rows), null, suffix) / scale
            suffixes.append(suffix)
        return torch.cat(suffixes[::-1], 1)

    @cached_property
    def log_normaliser(self) -> Float[Tensor, " pair"]:
        """The log of Z of every pair: of the posterior log p(f | e), of the prior 0."""
        return self._scales[..., 0].log().sum(-1)

    @cached_property
    def marginals(self) -> Float[Tensor, "pair target source"]:
        """The probability of every link."""
        links = torch.cat(self._forward[1], 1) * self._after / self._scales
        return links[..., 1:]

    @property
    def null_marginals(self) -> Float[Tensor, "pair target"]:
        """The probability that a target word has no link; 0 at padding."""
        return (1 - self.marginals.sum(-1)).clamp(min=0) * self.weights.mask

    def unlinked_probability(
        self, pair: int, words: Sequence[int], positions: Sequence[int]
    ) -> float:
        """The probability that none of some words is linked to any of some positions.

        That is the sum over all links with the weights of these left out, divided by the sum over
        all links. Only the part from the first to the last of the words differs.

        Args:
            pair: The sentence pair.
            words: Some of its target words.
            positions: Some source positions, from 1.
        """
        sums, _, scales = self._forward
        linked, null = self.weights.padded
        reached = sums[min(words)][pair, 0]
        for word in range(min(words), max(words) + 1):
            arriving = (reached @ self.weights.moves[pair]) * linked[pair, word]
            if word in words:
                arriving[..., positions] = 0
            reached = (arriving + reached * null[pair, word]) / scales[word][pair, 0]
        return float((reached * self._after[pair, max(words)]).sum().clamp(0, 1))

    def constrained_probability(self, pair: int, allowed: Bool[Tensor, "target source"]) -> float:
        """The probability that all links of a pair are allowed ones; no link always is."""
        linked, null = (weights[pair] for weights in self.weights.padded)
        linked = linked * torch.nn.functional.pad(allowed, (1, 0))
        reached = torch.zeros_like(self.weights.moves[pair, 0])
        reached[0] = 1
        for word, scale in enumerate(self._forward[2]):
            arriving = (reached @ self.weights.moves[pair]) * linked[word]
            reached = (arriving + reached * null[word]) / scale[pair, 0]
        return float(reached.sum().clamp(0, 1))

    @cached_property
    def expected_moves(self) -> Float[Tensor, "pair before position"]:
        """Expected number of links to each position after each."""
        linked = self.weights.padded[0]
        arriving = linked * self._after / self._scales
        return (self._before.mT @ arriving) * self.weights.moves

    @cached_property
    def _null_by_position(self) -> Float[Tensor, "pair target position"]:
        """The probability of null at each position; 0 at padding."""
        null = self.weights.padded[1]
        return self._before * null / self._scales * self._after * self.weights.mask[..., None]

    def expected_log_weight(self, other: ChainWeights) -> Float[Tensor, " pair"]:
        """E log of the unnormalised probability that other parameters give, under this chain.

        A term p log w is 0 where p = 0.
        """
        null = self._null_by_position
        kept = (other.null * other.null_probability).expand_as(null)
        return (
            torch.special.xlogy(self.expected_moves, other.moves).sum((-2, -1))
            + torch.special.xlogy(self.marginals, other.linked).sum((-2, -1))
            + torch.special.xlogy(null, kept).sum((-2, -1))
        )

    def entropy(self) -> Float[Tensor, " pair"]:
        """The entropy of the links of every pair, in nats."""
        return self.log_normaliser - self.expected_log_weight(self.weights)

    def log_prob(self, value: Int[Tensor, "*sample pair target"]) -> Float[Tensor, "*sample pair"]:
        """Log-probability of the links of every pair."""
        weights, positions = self.weights, self.positions
        position, is_null = value % positions, value >= positions
        before = torch.nn.functional.pad(position[..., :-1], (1, 0))
        pair = torch.arange(value.shape[-2])[:, None]
        word = torch.arange(value.shape[-1])
        linked, null = weights.padded
        move = weights.moves[pair, before, position] * linked[pair, word, position]
        kept = null.expand_as(linked)[pair, word, position] * (position == before)
        log_weight = torch.where(is_null, kept, move).log()
        return log_weight.masked_fill(~weights.mask, 0).sum(-1) - self.log_normaliser

    def sample(self, sample_shape: torch.Size = torch.Size()) -> Int[Tensor, "*sample pair target"]:
        """Samples links from left to right, each given the word before and all weights."""
        linked, null = self.weights.padded
        pairs = torch.arange(linked.shape[0])
        position = linked.new_zeros(*sample_shape, len(pairs), dtype=torch.int64)
        states = []
        for word in range(linked.shape[1]):
            suffix = self._after[:, word]
            move = self.weights.moves[pairs, position] * linked[:, word] * suffix
            here = torch.nn.functional.one_hot(position, self.positions)
            kept = here * null[:, word] * suffix
            state = torch.distributions.Categorical(torch.cat([move, kept], -1)).sample()
            position = state % self.positions
            states.append(state)
        return torch.stack(states, -1)

    def likeliest(self) -> Int[Tensor, "pair target"]:
        """The likeliest links of every pair: the Viterbi algorithm."""
        linked, null = (weight.log() for weight in self.weights.padded)
        moves = self.weights.moves.log()
        best = torch.full_like(moves[:, 0], -torch.inf)
        best[:, 0] = 0
        origins = []
        stay = torch.arange(self.positions)
        for word in range(linked.shape[1]):
            score, origin = (best[..., None] + moves).max(-2)
            score, kept = score + linked[:, word], best + null[:, word]
            origins.append(torch.where(kept >= score, stay + self.positions, origin))
            best = torch.maximum(score, kept)
        return self._trace_back(best.argmax(-1), origins)

    def _trace_back(
        self, position: Int[Tensor, " pair"], origins: list[Tensor]
    ) -> Int[Tensor, "pair target"]:
        """The states of the best path to a last position."""
        states = []
        for origin in reversed(origins):
            previous = origin.gather(-1, position[:, None])[:, 0]
            is_null = previous >= self.positions
            states.append(position + self.positions * is_null)
            position = torch.where(is_null, position, previous)
        return torch.stack(states[::-1], -1)

    def with_weights(self, **changes: Any) -> LinkChain:
        """The chain with some of its parameters replaced."""
        return LinkChain(replace(self.weights, **changes))


@register_kl(LinkChain, LinkChain)
def _kl_of_chains(q: LinkChain, p: LinkChain) -> Float[Tensor, " pair"]:
    """KL(q ‖ p) of the links of every pair; exactly 0 where both are one object."""
    if q is p:
        return torch.zeros_like(q.log_normaliser)
    own = q.expected_log_weight(q.weights) - q.log_normaliser
    return own - q.expected_log_weight(p.weights) + p.log_normaliser
