r"""Ranking: whether uncertainty detects errors and out-of-domain text.

A rejection curve replaces the most uncertain translations by perfect ones and shows the remaining
mean error against the share replaced. The prediction rejection ratio compares the curve of an
uncertainty with that of a random order and that of the true errors (Malinin and Gales 2021,
https://arxiv.org/abs/2002.07650):

.. math:: \mathrm{PRR} = \frac{A_\mathrm{random} - A_\mathrm{uncertainty}}
                              {A_\mathrm{random} - A_\mathrm{oracle}} \cdot 100.

Ties are averaged. So a constant uncertainty has a ratio of 0 and a ROC AUC of 0.5.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy import ndarray


def rejection_curve(
    uncertainty: Float[ndarray, " sentence"], error: Float[ndarray, " sentence"]
) -> Float[ndarray, " replaced"]:
    """The mean error that remains when the 0, 1, 2 ... most uncertain sentences are perfect.

    Args:
        uncertainty: The uncertainty of every sentence.
        error: The error of every sentence; 0 is perfect.
    """
    _, group = np.unique(-uncertainty, return_inverse=True)
    means = np.bincount(group, error) / np.bincount(group)
    ordered = means[np.sort(group)]
    remaining = error.sum() - np.concatenate([[0.0], np.cumsum(ordered)])
    curve: Float[ndarray, " replaced"] = remaining / len(error)
    return curve


def rejection_ratio(
    uncertainty: Float[ndarray, " sentence"], error: Float[ndarray, " sentence"]
) -> float:
    """The prediction rejection ratio, at most 100; NaN if all sentences have the same error.

    Args:
        uncertainty: The uncertainty of every sentence.
        error: The error of every sentence; 0 is perfect.
    """
    random = error.mean() / 2
    area, oracle = (_area(rejection_curve(order, error)) for order in (uncertainty, error))
    if random - oracle <= 1e-12 * max(random, 1e-300):  # equal up to rounding
        return float("nan")
    return float(100 * (random - area) / (random - oracle))


def _area(curve: Float[ndarray, " replaced"]) -> float:
    """The area under a curve, by the trapezoidal rule."""
    return float((curve.sum() - (curve[0] + curve[-1]) / 2) / (len(curve) - 1))


def roc_auc(inside: Float[ndarray, " one"], outside: Float[ndarray, " other"]) -> float:
    """The probability that an out-of-domain sentence is more uncertain; a tie counts half."""
    ordered = np.sort(inside)
    below = np.searchsorted(ordered, outside, side="left")
    upto = np.searchsorted(ordered, outside, side="right")
    return float((below + upto).mean() / (2 * len(inside)))


def correlation(first: Float[ndarray, " sentence"], second: Float[ndarray, " sentence"]) -> float:
    """Pearson's correlation; NaN if one variable is constant."""
    if not (_varies(first) and _varies(second)):
        return float("nan")
    x, y = first - first.mean(), second - second.mean()
    return float(x @ y / np.sqrt((x @ x) * (y @ y)))


def _varies(values: Float[ndarray, " sentence"]) -> bool:
    """Whether numbers differ by more than relative rounding errors."""
    return bool(np.ptp(values) > 1e-12 * np.abs(values).max())
