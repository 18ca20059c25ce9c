r"""Ranking: whether what a model is unsure of is what it gets wrong, or what it does not know.

A rejection curve replaces the most uncertain translations by perfect ones and draws the mean error
that is left against the share replaced. Between the straight line of a random order and the curve
of the true errors, the prediction rejection ratio says how far an uncertainty comes (Malinin and
Gales 2021, https://arxiv.org/abs/2002.07650):

.. math:: \mathrm{PRR} = \frac{A_\mathrm{random} - A_\mathrm{uncertainty}}
                              {A_\mathrm{random} - A_\mathrm{oracle}} \cdot 100.

Equal uncertainties are in no order: each stands for the mean of them all. So one that says nothing
has a ratio of 0, and an area under the ROC curve of a half.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy import ndarray

__all__ = ["correlation", "rejection_curve", "rejection_ratio", "roc_area"]


def rejection_curve(
    uncertainty: Float[ndarray, " sentence"], error: Float[ndarray, " sentence"]
) -> Float[ndarray, " replaced"]:
    """The mean error that is left when the 0, 1, 2 ... most uncertain sentences are perfect.

    Args:
        uncertainty: Of every sentence.
        error: The same; 0 is perfect.
    """
    _check_pairs(uncertainty, error)
    _, group = np.unique(-uncertainty, return_inverse=True)
    means = np.bincount(group, error) / np.bincount(group)
    ordered = means[np.sort(group)]
    left = error.sum() - np.concatenate([[0.0], np.cumsum(ordered)])
    found: Float[ndarray, " replaced"] = left / len(error)
    return found


def rejection_ratio(
    uncertainty: Float[ndarray, " sentence"], error: Float[ndarray, " sentence"]
) -> float:
    """The prediction rejection ratio, at most 100; NaN where all sentences have one error.

    Args:
        uncertainty: Of every sentence.
        error: The same; 0 is perfect.
    """
    random = error.mean() / 2
    own, best = (_area(rejection_curve(each, error)) for each in (uncertainty, error))
    # what is lost to rounding alone is no difference
    if random - best <= 1e-12 * max(random, 1e-300):
        return float("nan")
    return float(100 * (random - own) / (random - best))


def _area(curve: Float[ndarray, " replaced"]) -> float:
    """Under straight lines between the points."""
    return float((curve.sum() - (curve[0] + curve[-1]) / 2) / (len(curve) - 1))


def roc_area(inside: Float[ndarray, " one"], outside: Float[ndarray, " other"]) -> float:
    """How often a sentence from outside is more uncertain than one from inside; a tie is half.

    Args:
        inside: Uncertainties of sentences such as a model was trained on.
        outside: Those of others.
    """
    if not len(inside) or not len(outside):
        raise ValueError("inside and outside must each be at least one sentence")
    ordered = np.sort(inside)
    below = np.searchsorted(ordered, outside, side="left")
    upto = np.searchsorted(ordered, outside, side="right")
    return float((below + upto).mean() / (2 * len(inside)))


def correlation(first: Float[ndarray, " sentence"], second: Float[ndarray, " sentence"]) -> float:
    """Pearson's; NaN where one of them does not vary."""
    _check_pairs(first, second)
    if not (_varies(first) and _varies(second)):
        return float("nan")
    one, other = first - first.mean(), second - second.mean()
    return float(one @ other / np.sqrt((one @ one) * (other @ other)))


def _varies(values: Float[ndarray, " sentence"]) -> bool:
    """Whether numbers differ by more than they are rounded by, however small they are."""
    return bool(np.ptp(values) > 1e-12 * np.abs(values).max())


def _check_pairs(first: ndarray, second: ndarray) -> None:
    if not len(first) or len(first) != len(second):
        raise ValueError(f"one number a sentence is needed: {len(first)} and {len(second)}")
