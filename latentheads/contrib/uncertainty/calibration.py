r"""Calibration: whether predictions of probability .7 are correct in 70 % of the cases.

Tokens are binned by their confidence, the probability :math:`p` of the likeliest token. With
:math:`n_b` tokens in bin b, their accuracy :math:`a_b` and mean confidence :math:`c_b`, the
expected calibration error (Guo et al. 2017, https://arxiv.org/abs/1706.04599) is

.. math:: \mathrm{ECE} = \sum_b \tfrac{n_b}{N} |a_b - c_b|,

with bins of equal width or of equal mass. The overconfidence, :math:`\bar c - \bar a`, does not
depend on the bins. The weighted error of Kumar and Sarawagi 2019,
https://arxiv.org/abs/1903.00802, takes the probabilities of all tokens :math:`v`,

.. math:: \tfrac1N \sum_b \Bigl| \sum_{i,v:\, p_i(v) \in b} p_i(v) ([v = y_i] - p_i(v)) \Bigr|.

All are functions of sums over sentences (:class:`BinSums`), so that a resample of the sentences
costs one matrix product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from latentheads.frames import make_frame

if TYPE_CHECKING:
    import pandas as pd

BINS = 15
"""Number of bins."""


def equal_width_edges(bins: int = BINS) -> Float[ndarray, " edge"]:
    """The inner edges of bins of equal width between 0 and 1."""
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    edges: Float[ndarray, " edge"] = np.arange(1, bins) / bins
    return edges


def equal_mass_edges(values: Float[ndarray, " token"], bins: int = BINS) -> Float[ndarray, " edge"]:
    """The inner edges of bins that hold about equal numbers of these probabilities."""
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    if not len(values):
        raise ValueError("values must be at least one")
    edges: Float[ndarray, " edge"] = np.quantile(values, np.arange(1, bins) / bins)
    return edges


@dataclass(frozen=True)
class Bins:
    """Binned confidences and accuracies: the data of a reliability diagram.

    Attributes:
        count: Tokens in every bin.
        confidence: Their mean confidence; NaN in an empty bin.
        accuracy: Their accuracy; NaN in an empty bin.
    """

    count: Float[ndarray, " bin"]
    confidence: Float[ndarray, " bin"]
    accuracy: Float[ndarray, " bin"]

    def to_frame(self) -> pd.DataFrame:
        """A row for each bin: count, confidence and accuracy."""
        return make_frame(vars(self), "bin")

    @property
    def error(self) -> float:
        """The expected calibration error; NaN without tokens."""
        return self._mean(np.abs(np.nan_to_num(self.accuracy - self.confidence)))

    @property
    def overconfidence(self) -> float:
        """Mean confidence minus accuracy: positive if a model is overconfident."""
        return self._mean(np.nan_to_num(self.confidence - self.accuracy))

    def _mean(self, values: Float[ndarray, " bin"]) -> float:
        tokens = self.count.sum()
        return float(self.count @ values / tokens) if tokens else float("nan")


@dataclass(frozen=True)
class BinSums:
    """Sums for every sentence and bin.

    Attributes:
        count: Number of tokens.
        confidence: Sum of their confidences.
        correct: Number of correct tokens.
    """

    count: Float[ndarray, "sentence bin"]
    confidence: Float[ndarray, "sentence bin"]
    correct: Float[ndarray, "sentence bin"]

    def bins(self, weights: Float[ndarray, " sentence"] | None = None) -> Bins:
        """Sums over sentences.

        Args:
            weights: How often each sentence counts, as in a resample; None: once.
        """
        parts = (self.count, self.confidence, self.correct)
        sums = [part.sum(0) if weights is None else weights @ part for part in parts]
        count, confidence, correct = sums
        with np.errstate(invalid="ignore"):
            return Bins(count, confidence / count, correct / count)


def sum_bins(
    confidence: Float[ndarray, " token"],
    correct: Bool[ndarray, " token"],
    sentence: Int[ndarray, " token"],
    sentences: int,
    edges: Float[ndarray, " edge"],
) -> BinSums:
    """Bins the tokens of every sentence.

    Args:
        confidence: The confidence of each token.
        correct: Whether each is correct.
        sentence: The index of its sentence.
        sentences: Number of sentences.
        edges: Inner edges; a confidence on an edge falls into the bin below it.
    """
    indices = sentence * (len(edges) + 1) + np.searchsorted(edges, confidence, side="left")
    shape = sentences, len(edges) + 1
    size = shape[0] * shape[1]
    columns = (np.ones_like(confidence), confidence, correct.astype(float))
    # without tokens np.bincount returns integers
    sums = (np.bincount(indices, column, size).reshape(shape).astype(float) for column in columns)
    return BinSums(*sums)
