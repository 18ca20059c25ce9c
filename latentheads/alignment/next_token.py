"""The law of the next word where heads may point: what decoding asks for.

The word's law given a state and the positions that are pointed at is that of
:mod:`latentheads.alignment.emission`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentheads.alignment.emission import (
    SMALLEST,
    by_pairs,
    mix_products,
    rows_at,
    sum_products,
    sum_tops,
)
from latentheads.layers.numeric import exp, exp_, full_precision
from latentheads.layers.output import CHUNK

__all__ = ["NextTokenDistribution"]


@dataclass
class _Masses:
    """Exponentials of scores against the vocabulary, in units of the largest of each row.

    Attributes:
        space: ``exp(scores - top)``, and room for further rows behind those that there are.
        top: The largest score of every row.
    """

    space: Float[Tensor, "sentence room vocab"]
    top: Float[Tensor, "sentence row"]

    @property
    def values(self) -> Float[Tensor, "sentence row vocab"]:
        """``exp(scores - top)``."""
        return self.space[:, : self.top.shape[1]]

    @classmethod
    def of(
        cls, rows: Float[Tensor, "sentence row dim"], weight: Float[Tensor, "vocab dim"]
    ) -> _Masses:
        """Multiplies rows with the output table."""
        scores = full_precision(rows @ weight.mT)
        top = scores.amax(-1)
        return cls(exp_(scores.sub_(top[..., None])), top)

    def joined(self, further: _Masses) -> _Masses:
        """With further rows behind these, in the same memory where it has room."""
        top, space = torch.cat([self.top, further.top], 1), self.space
        rows, more = self.top.shape[1], top.shape[1]
        if space.shape[1] < more:
            # by a quarter at a time: to copy all of it for every token would be most of the work
            space = space.new_empty(len(space), more + more // 4, space.shape[2])
            space[:, :rows] = self.values
        space[:, rows:more] = further.values
        return _Masses(space, top)

    def select(self, kept: Int[Tensor, " kept"], dim: int = 0) -> _Masses:
        """Keeps, repeats or reorders sentences, or the rows of all."""
        return _Masses(self.values.index_select(dim, kept), self.top.index_select(dim, kept))


class NextTokenDistribution:
    """The law of the next word, summed over where heads may point: what decoding asks for.

    The score that each position adds to each word is kept while its sentence is decoded.

    Args:
        lexicons: What every position adds to a state, for each head: one or two.
        weight: The output table.
    """

    def __init__(
        self, lexicons: Sequence[Float[Tensor, "sentence key dim"]], weight: Float[Tensor, "v dim"]
    ) -> None:
        self.lexicons = list(lexicons)
        self.weight = weight
        self.sides = [_Masses.of(rows, weight) for rows in self.lexicons]

    def select(self, sentences: Int[Tensor, " kept"]) -> None:
        """Keeps, repeats or reorders sentences."""
        self.lexicons = [rows.index_select(0, sentences) for rows in self.lexicons]
        self.sides = [side.select(sentences) for side in self.sides]

    def extend(self, lexicons: Sequence[Float[Tensor, "sentence new dim"]]) -> None:
        """Takes further positions in, behind those there are."""
        pairs = zip(self.lexicons, lexicons, strict=True)
        self.lexicons = [torch.cat(pair, 1) for pair in pairs]
        further = [_Masses.of(rows, self.weight) for rows in lexicons]
        self.sides = [one.joined(more) for one, more in zip(self.sides, further, strict=True)]

    def keep(self, positions: Int[Tensor, " kept"]) -> None:
        """Keeps some positions of every sentence."""
        self.lexicons = [rows.index_select(1, positions) for rows in self.lexicons]
        self.sides = [side.select(positions, 1) for side in self.sides]

    def log_probs(
        self,
        states: Float[Tensor, "sentence row dim"],
        log_prior: Float[Tensor, "sentence row *keys"],
    ) -> Float[Tensor, "sentence row vocab"]:
        r"""Log-probabilities of all words, :math:`\log \sum_s \pi_s p(v \mid t, s)`.

        Args:
            states: What predicts each next word.
            log_prior: Log-probability of every position, or pair of positions.
        """
        here = _Masses.of(states, self.weight)
        normalisers, low = self._log_normalisers(here, states)
        weights = log_prior - normalisers
        tops = [side.top for side in self.sides]
        weights = weights + sum_tops(torch.zeros_like(here.top), tops)
        largest = weights.flatten(2).amax(-1)
        shares = (
            weights - by_pairs(largest, [torch.zeros_like(top[:, None]) for top in tops])
        ).exp()
        mixed = mix_products(shares, *[side.values for side in self.sides])
        tiny = torch.finfo(mixed.dtype).tiny
        spread = here.values * mixed
        found = spread.clamp_min(tiny).log() + (here.top + largest)[..., None]
        lost = low.flatten(2).any(-1, keepdim=True) | (spread < tiny)
        if lost.any():
            self._mend_words(found, lost, states, log_prior - normalisers)
        return found

    def _mend_words(
        self,
        found: Float[Tensor, "sentence row vocab"],
        lost: Bool[Tensor, "sentence row vocab"],
        states: Float[Tensor, "sentence row dim"],
        weights: Float[Tensor, "sentence row *keys"],
    ) -> None:
        """Sums in logarithms where a product of exponentials is too small for a float.

        Args:
            found: Log-probabilities, of which the lost ones are set.
            lost: Which.
            states: What predicts each next word.
            weights: Log-probability of every position, or pair of positions, less its normaliser.
        """
        most = CHUNK.get(found.device.type, CHUNK["cuda"]) // max(1, weights[0].numel())
        for place in lost.flatten(1).any(1).nonzero().flatten().tolist():
            own = weights[place].flatten(1)[:, :, None]
            for words in lost[place].any(0).nonzero().flatten().split(max(1, most)):
                rows = self.weight[words]
                said = [full_precision(side[place] @ rows.mT) for side in self.lexicons]
                both = said[0] if len(said) == 1 else (said[0][:, None] + said[1]).flatten(0, 1)
                mixed = (own + both).logsumexp(1) + full_precision(states[place] @ rows.mT)
                before = found[place][:, words]
                found[place][:, words] = mixed.to(found.dtype).where(lost[place][:, words], before)

    def word_log_probs(
        self,
        states: Float[Tensor, "sentence row dim"],
        words: Int[Tensor, "sentence row"],
    ) -> Float[Tensor, "sentence row *keys"]:
        """Log-probability of one word a row, for all positions.

        Args:
            states: What predicts it.
            words: The word.
        """
        return self._said_of(states, full_precision(self.weight)[words])

    def word_entropies(
        self, states: Float[Tensor, "sentence row dim"]
    ) -> Float[Tensor, "sentence row *keys"]:
        r"""Entropy of the next word given where heads point, for all positions.

        With :math:`a_v` and :math:`b_v` the scores below the largest of their rows it is
        :math:`\log Z - \frac1Z \sum_v e^{a_v + b_v} (a_v + b_v)`: one product of matrices for Z,
        and one for each of the factors that the sum is over.

        Args:
            states: What predicts each next word.
        """
        here = _Masses.of(states, self.weight)
        values = [side.values for side in self.sides]
        scaled = sum_products(here.values, *values)
        spread = sum_products(torch.xlogy(here.values, here.values), *values)
        for place, value in enumerate(values):
            moved = [*values[:place], torch.xlogy(value, value), *values[place + 1 :]]
            spread = spread + sum_products(here.values, *moved)
        kept = scaled.clamp_min(SMALLEST)
        found = kept.log() - spread / kept
        if (low := scaled < SMALLEST).any():
            rows = rows_at(low, states, self.lexicons)
            laws = full_precision(rows @ self.weight.mT).log_softmax(-1)
            found[low] = -(exp(laws) * laws).sum(-1).to(found.dtype)
        return found

    def mean_log_probs(
        self,
        states: Float[Tensor, "sentence row dim"],
        law: Float[Tensor, "sentence row vocab"],
    ) -> Float[Tensor, "sentence row *keys"]:
        """Mean log-probability of words that come by another law, for all positions.

        Args:
            states: What predicts each next word.
            law: The probabilities that words come with.
        """
        return self._said_of(states, law @ full_precision(self.weight))

    def _said_of(
        self,
        states: Float[Tensor, "sentence row dim"],
        meant: Float[Tensor, "sentence row dim"],
    ) -> Float[Tensor, "sentence row *keys"]:
        """Log-probability of words by their rows of the output table; of mean rows the mean."""
        said = [meant @ full_precision(each).mT for each in self.lexicons]
        plain = (meant * full_precision(states)).sum(-1)
        here = _Masses.of(states, self.weight)
        return by_pairs(plain, said) - self._log_normalisers(here, states)[0]

    def _log_normalisers(
        self, here: _Masses, states: Float[Tensor, "sentence row dim"]
    ) -> tuple[Float[Tensor, "sentence row *keys"], Bool[Tensor, "sentence row *keys"]]:
        """The log of what all words sum to, and where a product of exponentials lost it."""
        scaled = sum_products(here.values, *[side.values for side in self.sides])
        found = scaled.clamp_min(SMALLEST).log()
        found += sum_tops(here.top, [side.top for side in self.sides])
        if (low := scaled < SMALLEST).any():
            rows = rows_at(low, states, self.lexicons)
            found[low] = full_precision(rows @ self.weight.mT).logsumexp(-1).to(found.dtype)
        return found, low
