"""The distribution of the next token, with alignments summed out: for decoding.

Given a state and the aligned positions it is that of
:mod:`latentheads.latents.alignments.emission`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentheads.latents.alignments.emission import (
    MIN_NORMALISER,
    outer_sum,
    states_at,
    sum_products,
    weighted_products,
)
from latentheads.layers.linear_log_prob import CHUNK
from latentheads.layers.numeric import exp, exp_, full_precision, without_autocast


@dataclass
class _ScaledExponentials:
    """``exp(scores - maximum)`` of rows against the vocabulary, with the maximum of each row.

    Attributes:
        storage: The values, followed by unused rows.
        maximum: The largest score of every row.
    """

    storage: Float[Tensor, "sentence room vocab"]
    maximum: Float[Tensor, "sentence row"]

    @property
    def values(self) -> Float[Tensor, "sentence row vocab"]:
        """``exp(scores - maximum)``."""
        return self.storage[:, : self.maximum.shape[1]]

    @classmethod
    def of(
        cls, rows: Float[Tensor, "sentence row dim"], weight: Float[Tensor, "vocab dim"]
    ) -> _ScaledExponentials:
        """Multiply rows with the output matrix."""
        scores = full_precision(rows @ weight.mT)
        maximum = scores.amax(-1)
        return cls(exp_(scores.sub_(maximum[..., None])), maximum)

    def append(self, other: _ScaledExponentials) -> _ScaledExponentials:
        """Append rows, in the same memory if it suffices."""
        maximum, storage = torch.cat([self.maximum, other.maximum], 1), self.storage
        rows, total = self.maximum.shape[1], maximum.shape[1]
        if storage.shape[1] < total:
            # grow by a quarter: copying everything for every token would dominate the cost
            storage = storage.new_empty(len(storage), total + total // 4, storage.shape[2])
            storage[:, :rows] = self.values
        storage[:, rows:total] = other.values
        return _ScaledExponentials(storage, maximum)

    def select(self, indices: Int[Tensor, " kept"], dim: int = 0) -> _ScaledExponentials:
        """Select, repeat or reorder sentences (dim 0) or rows (dim 1)."""
        return _ScaledExponentials(
            self.values.index_select(dim, indices), self.maximum.index_select(dim, indices)
        )


class NextTokenDistribution:
    """The distribution of the next token, with alignments summed out.

    The scores of all positions against the vocabulary are cached while a sentence is decoded.

    Args:
        vectors: The vector that each position adds to a state, for each of one or two heads.
        weight: The output matrix.
    """

    def __init__(
        self, vectors: Sequence[Float[Tensor, "sentence key dim"]], weight: Float[Tensor, "v dim"]
    ) -> None:
        self.vectors = list(vectors)
        self.weight = weight
        self.exponentials = [_ScaledExponentials.of(rows, weight) for rows in self.vectors]

    def select(self, sentences: Int[Tensor, " kept"]) -> None:
        """Select, repeat or reorder sentences."""
        self.vectors = [rows.index_select(0, sentences) for rows in self.vectors]
        self.exponentials = [side.select(sentences) for side in self.exponentials]

    def extend(self, vectors: Sequence[Float[Tensor, "sentence new dim"]]) -> None:
        """Append positions."""
        pairs = zip(self.vectors, vectors, strict=True)
        self.vectors = [torch.cat(pair, 1) for pair in pairs]
        new = [_ScaledExponentials.of(rows, self.weight) for rows in vectors]
        self.exponentials = [
            side.append(added) for side, added in zip(self.exponentials, new, strict=True)
        ]

    def keep_positions(self, positions: Int[Tensor, " kept"]) -> None:
        """Keep some positions of every sentence."""
        self.vectors = [rows.index_select(1, positions) for rows in self.vectors]
        self.exponentials = [side.select(positions, 1) for side in self.exponentials]

    def log_probs(
        self,
        states: Float[Tensor, "sentence row dim"],
        log_prior: Float[Tensor, "sentence row *keys"],
    ) -> Float[Tensor, "sentence row vocab"]:
        r"""Log-probabilities of the vocabulary, :math:`\log \sum_s \pi_s p(v \mid t, s)`.

        With the maxima :math:`b_s` of the scores :math:`B_s` it is
        :math:`A_t[v] + \log \sum_s w_s e^{B_s[v] - b_s}` for :math:`w_s = \pi_s e^{b_s} / Z(t, s)`:
        one matrix product, of weights with exponentials that are stored already.
        """
        state_exp = _ScaledExponentials.of(states, self.weight)
        log_normalisers, underflows = self._log_normalisers(state_exp, states)
        unscaled_weights = log_prior - log_normalisers
        maxima = [side.maximum[:, None] for side in self.exponentials]
        log_weights = unscaled_weights + outer_sum(torch.zeros_like(state_exp.maximum), maxima)
        # the largest weight becomes 1, so that none overflows
        max_log_weight = log_weights.flatten(2).amax(-1)
        shift = outer_sum(max_log_weight, [torch.zeros_like(maximum) for maximum in maxima])
        weights = (log_weights - shift).exp()
        values = [side.values for side in self.exponentials]
        # autocast may round scores to half precision, but not probabilities
        with without_autocast(states.device):
            mixture = weighted_products(weights.to(values[0].dtype), *values)
        tiny = torch.finfo(mixture.dtype).tiny
        products = mixture.mul_(state_exp.values)
        log_scale = (state_exp.maximum + max_log_weight)[..., None]
        # the smallest product is found in one pass, that of each entry below takes three more
        if not (underflows.any() | (products.amin() < tiny)):
            return products.log_().add_(log_scale)
        # a state and its positions prefer very different tokens: sum in the log domain there
        imprecise = underflows.flatten(2).any(-1, keepdim=True) | (products < tiny)
        log_probs = products.clamp_min_(tiny).log_().add_(log_scale)
        self._recompute_imprecise(log_probs, imprecise, states, unscaled_weights)
        return log_probs

    def _recompute_imprecise(
        self,
        log_probs: Float[Tensor, "sentence row vocab"],
        imprecise: Bool[Tensor, "sentence row vocab"],
        states: Float[Tensor, "sentence row dim"],
        log_weights: Float[Tensor, "sentence row *keys"],
    ) -> None:
        """Recompute entries by logsumexp where products of exponentials underflow; in place."""
        chunk = CHUNK.get(log_probs.device.type, CHUNK["cuda"]) // max(1, log_weights[0].numel())
        for sentence in imprecise.flatten(1).any(1).nonzero().flatten().tolist():
            sentence_weights = log_weights[sentence].flatten(1)[:, :, None]
            for tokens in imprecise[sentence].any(0).nonzero().flatten().split(max(1, chunk)):
                rows = self.weight[tokens]
                scores, *others = [
                    full_precision(side[sentence] @ rows.mT) for side in self.vectors
                ]
                for other in others:  # of all pairs of positions
                    scores = (scores[:, None] + other).flatten(0, 1)
                state_scores = full_precision(states[sentence] @ rows.mT)
                recomputed = (sentence_weights + scores).logsumexp(1) + state_scores
                previous, mask = log_probs[sentence][:, tokens], imprecise[sentence][:, tokens]
                log_probs[sentence][:, tokens] = recomputed.to(previous.dtype).where(mask, previous)

    def word_log_probs(
        self,
        states: Float[Tensor, "sentence row dim"],
        tokens: Int[Tensor, "sentence row"],
    ) -> Float[Tensor, "sentence row *keys"]:
        """Log-probability of one token for each state, for all positions."""
        return self._log_probs_of(states, full_precision(self.weight)[tokens])

    def word_entropies(
        self, states: Float[Tensor, "sentence row dim"]
    ) -> Float[Tensor, "sentence row *keys"]:
        r"""Entropy of the next token given the alignments, for all positions.

        With scores :math:`a_v` and :math:`b_v` minus the maximum of their rows it is
        :math:`\log Z - \frac1Z \sum_v e^{a_v + b_v} (a_v + b_v)`: one matrix product for Z, and one
        for each term of the sum.
        """
        state_exp = _ScaledExponentials.of(states, self.weight)
        values = [side.values for side in self.exponentials]
        with without_autocast(states.device):
            normalisers = sum_products(state_exp.values, *values)
            # a e^a from e^a alone, since scores are not stored; 0 where e^a is 0
            expected_scores = sum_products(torch.xlogy(state_exp.values, state_exp.values), *values)
            for index, value in enumerate(values):
                factors = [*values[:index], torch.xlogy(value, value), *values[index + 1 :]]
                expected_scores = expected_scores + sum_products(state_exp.values, *factors)
        # entries below the bound are recomputed: clamped, they only give no NaN until then
        safe = normalisers.clamp_min(MIN_NORMALISER)
        entropies = safe.log() - expected_scores / safe
        if (underflows := normalisers < MIN_NORMALISER).any():
            rows = states_at(underflows, states, self.vectors)
            log_probs = full_precision(rows @ self.weight.mT).log_softmax(-1)
            entropies[underflows] = -(exp(log_probs) * log_probs).sum(-1).to(entropies.dtype)
        return entropies

    def mean_log_probs(
        self,
        states: Float[Tensor, "sentence row dim"],
        probs: Float[Tensor, "sentence row vocab"],
    ) -> Float[Tensor, "sentence row *keys"]:
        """Expected log-probability of tokens under another distribution, for all positions."""
        return self._log_probs_of(states, probs @ full_precision(self.weight))

    def _log_probs_of(
        self,
        states: Float[Tensor, "sentence row dim"],
        token_rows: Float[Tensor, "sentence row dim"],
    ) -> Float[Tensor, "sentence row *keys"]:
        """Log-probability of tokens by their rows of the output matrix; linear in the rows."""
        vector_scores = [token_rows @ full_precision(vectors).mT for vectors in self.vectors]
        state_scores = (token_rows * full_precision(states)).sum(-1)
        state_exp = _ScaledExponentials.of(states, self.weight)
        return outer_sum(state_scores, vector_scores) - self._log_normalisers(state_exp, states)[0]

    def _log_normalisers(
        self, state_exp: _ScaledExponentials, states: Float[Tensor, "sentence row dim"]
    ) -> tuple[Float[Tensor, "sentence row *keys"], Bool[Tensor, "sentence row *keys"]]:
        """The log-normaliser of every position, and where products of exponentials underflow."""
        with without_autocast(states.device):
            normalisers = sum_products(
                state_exp.values, *[side.values for side in self.exponentials]
            )
        log_normalisers = normalisers.clamp_min(MIN_NORMALISER).log()
        maxima = [side.maximum[:, None] for side in self.exponentials]
        log_normalisers += outer_sum(state_exp.maximum, maxima)
        if (underflows := normalisers < MIN_NORMALISER).any():
            rows = states_at(underflows, states, self.vectors)
            exact = full_precision(rows @ self.weight.mT).logsumexp(-1)
            log_normalisers[underflows] = exact.to(log_normalisers.dtype)
        return log_normalisers, underflows
