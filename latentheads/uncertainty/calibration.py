r"""Calibration: whether predictions of probability .7 are right seven times of ten.

Tokens are put into bins by the probability :math:`p` that their law gives to its likeliest token.
With :math:`n_b` tokens in bin b, the share :math:`a_b` of right ones and the mean
:math:`c_b` of the probabilities, the expected calibration error (Guo et al. 2017,
https://arxiv.org/abs/1706.04599) is

.. math:: \mathrm{ECE} = \sum_b \tfrac{n_b}{N} |a_b - c_b|,

with bins of equal width or of equal mass. Its signed form, :math:`\bar c - \bar a`, is positive
where a model is too sure, whatever the bins. The weighted error of Kumar and Sarawagi 2019,
https://arxiv.org/abs/1903.00802, looks at the probabilities of all tokens :math:`v`,

.. math:: \tfrac1N \sum_b \Bigl| \sum_{i,v:\, p_i(v) \in b} p_i(v) ([v = y_i] - p_i(v)) \Bigr|.

Everything is a function of sums over sentences (:class:`BinSums`), so that a resample of the
sentences costs one product of matrices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

__all__ = ["BINS", "BinSums", "Bins", "edges_of_mass", "edges_of_width", "sum_bins"]

BINS = 15
"""Bins of probabilities."""


def edges_of_width(bins: int = BINS) -> Float[ndarray, " edge"]:
    """The inner edges of bins of equal width between 0 and 1."""
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    edges: Float[ndarray, " edge"] = np.arange(1, bins) / bins
    return edges


def edges_of_mass(values: Float[ndarray, " token"], bins: int = BINS) -> Float[ndarray, " edge"]:
    """The inner edges of bins that hold about equal numbers of these probabilities."""
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    if not len(values):
        raise ValueError("values must be at least one")
    edges: Float[ndarray, " edge"] = np.quantile(values, np.arange(1, bins) / bins)
    return edges


@dataclass(frozen=True)
class Bins:
    """Probabilities and outcomes in bins: what a reliability diagram shows.

    Attributes:
        count: Tokens in every bin.
        confidence: Their mean probability; NaN in an empty bin.
        accuracy: The share of them that is right; NaN in an empty bin.
    """

    count: Float[ndarray, " bin"]
    confidence: Float[ndarray, " bin"]
    accuracy: Float[ndarray, " bin"]

    @property
    def error(self) -> float:
        """The expected calibration error; NaN of no token."""
        away = np.abs(np.nan_to_num(self.accuracy - self.confidence))
        return self._mean(away)

    @property
    def excess(self) -> float:
        """Mean probability less the share of right ones, positive where a model is too sure."""
        return self._mean(np.nan_to_num(self.confidence - self.accuracy))

    def _mean(self, gaps: Float[ndarray, " bin"]) -> float:
        tokens = self.count.sum()
        return float(self.count @ gaps / tokens) if tokens else float("nan")


@dataclass(frozen=True)
class BinSums:
    """For every sentence and bin: how many tokens, their probabilities, and the right ones.

    Attributes:
        count: Tokens.
        confidence: The sum of their probabilities.
        right: How many are right.
    """

    count: Float[ndarray, "sentence bin"]
    confidence: Float[ndarray, "sentence bin"]
    right: Float[ndarray, "sentence bin"]

    def bins(self, weights: Float[ndarray, " sentence"] | None = None) -> Bins:
        """Adds sentences up.

        Args:
            weights: How often each sentence counts, as in a resample; None: once.
        """
        parts = (self.count, self.confidence, self.right)
        sums = [part.sum(0) if weights is None else weights @ part for part in parts]
        count, confidence, right = sums
        with np.errstate(invalid="ignore"):
            return Bins(count, confidence / count, right / count)


def sum_bins(
    confidence: Float[ndarray, " token"],
    right: Bool[ndarray, " token"],
    sentence: Int[ndarray, " token"],
    sentences: int,
    edges: Float[ndarray, " edge"],
) -> BinSums:
    """Puts tokens into bins, those of every sentence apart.

    Args:
        confidence: The probability that each was said with.
        right: Whether it is right.
        sentence: The sentence that it stands in, from 0.
        sentences: How many there are.
        edges: Inner edges; a probability on an edge falls into the bin below it.
    """
    places = sentence * (len(edges) + 1) + np.searchsorted(edges, confidence, side="left")
    shape = sentences, len(edges) + 1
    size = shape[0] * shape[1]
    columns = (np.ones_like(confidence), confidence, right.astype(float))
    # of no token at all numpy counts in whole numbers
    found = (np.bincount(places, each, size).reshape(shape).astype(float) for each in columns)
    return BinSums(*found)
