r"""Scaling: one or two numbers, fitted on held-out text, that calibrate probabilities.

- A temperature T divides the log-probabilities of a law, which is then normalised again (Guo et al.
  2017, https://arxiv.org/abs/1706.04599). It is the one of the highest likelihood. The slope of
  that in :math:`\beta = 1 / T`, :math:`\sum_i \log p_i(y_i) - \mathbb E_\beta[\log p_i]`, falls
  everywhere, so it is found where the slope is 0, between two values of a grid.
- A line through log-odds, :math:`\sigma(a \log\frac{p}{1 - p} + b)`, is for outcomes that no law is
  of, such as whether a token of a translation is right (Platt 1999).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

__all__ = ["COLDEST", "HOTTEST", "Line", "TemperatureFit", "fit_line"]

INVERSES = torch.logspace(-1, 1, 41, base=3.0, dtype=torch.float64)
"""Inverse temperatures of the grid, from a third to 3: neighbours differ by 6 %."""

COLDEST, HOTTEST = 1 / float(INVERSES[-1]), 1 / float(INVERSES[0])
"""The temperatures between which the best one is looked for."""

STEPS = 50
"""Steps of Newton's method at most."""


class TemperatureFit:
    """The temperature of the highest likelihood, of tokens that come one batch after the other."""

    def __init__(self) -> None:
        self.slopes = torch.zeros_like(INVERSES)

    def add(self, log_law: Float[Tensor, "token vocab"], words: Int[Tensor, " token"]) -> None:
        """Takes tokens in.

        Args:
            log_law: Log-probabilities of all tokens at each place.
            words: The tokens that came.
        """
        came = log_law.gather(-1, words[:, None])[:, 0].double().sum()
        for place, inverse in enumerate(INVERSES.tolist()):
            law = (log_law * inverse).softmax(-1)
            expected = torch.einsum("tv,tv->", law, log_law)
            self.slopes[place] += (came - expected.double()).cpu()

    @property
    def temperature(self) -> float:
        """The best one between ``COLDEST`` and ``HOTTEST``; 1 where nothing was taken in."""
        slopes = self.slopes.tolist()
        inverses = INVERSES.tolist()
        if not any(slopes):
            return 1.0
        if slopes[0] <= 0:
            return HOTTEST
        for left, right, low, high in zip(slopes, slopes[1:], inverses, inverses[1:], strict=False):
            if right <= 0:
                return 1 / (low + (high - low) * left / (left - right))
        return COLDEST


@dataclass(frozen=True)
class Line:
    """Probabilities by a line through log-odds.

    Attributes:
        slope: What log-odds are multiplied by.
        offset: What is added to them.
    """

    slope: float
    offset: float

    def __call__(self, log_prob: Float[ndarray, " token"]) -> Float[ndarray, " token"]:
        """The probability that each is right.

        Args:
            log_prob: The log-probability that each was said with.
        """
        return _sigmoid(self.slope * _log_odds(log_prob) + self.offset)


def fit_line(log_prob: Float[ndarray, " token"], right: Bool[ndarray, " token"]) -> Line:
    """Fits the line of the highest likelihood by Newton's method, whose steps never lower it.

    The likelihood has one top. A whole step may go far beyond it where nearly all tokens are sure:
    such a step is halved until it rises.

    The outcomes stand a little off 0 and 1, as Platt has them, so that the line is finite where
    they can be told apart without a mistake.

    Args:
        log_prob: The log-probability that each token was said with.
        right: Whether it is right.
    """
    if not len(log_prob):
        raise ValueError("log_prob must be of at least one token")
    yes, no = right.sum(), (~right).sum()
    outcome = np.where(right, (yes + 1) / (yes + 2), 1 / (no + 2))
    odds = _log_odds(log_prob)
    inputs = np.stack([odds, np.ones_like(odds)])
    found = np.array([0.0, np.log(outcome.mean() / (1 - outcome.mean()))])
    reached = _likelihood(found @ inputs, outcome)
    for _ in range(STEPS):
        probability = _sigmoid(found @ inputs)
        slope = inputs @ (outcome - probability)
        curve = (inputs * (probability * (1 - probability))) @ inputs.T
        step = np.linalg.lstsq(curve, slope, rcond=None)[0]
        while (new := _likelihood((found + step) @ inputs, outcome)) < reached:
            step = step / 2
        found, reached = found + step, new
        if np.abs(step).max() < 1e-10:
            break
    return Line(float(found[0]), float(found[1]))


def _sigmoid(x: Float[ndarray, " token"]) -> Float[ndarray, " token"]:
    """``1 / (1 + exp(-x))``, of any size without a warning."""
    found: Float[ndarray, " token"] = np.exp(-np.logaddexp(0.0, -x))
    return found


def _likelihood(odds: Float[ndarray, " token"], outcome: Float[ndarray, " token"]) -> float:
    """The log-likelihood of outcomes under log-odds."""
    return float((outcome * odds - np.logaddexp(0.0, odds)).sum())


def _log_odds(log_prob: Float[ndarray, " token"]) -> Float[ndarray, " token"]:
    """Log p / (1 - p), where p is no nearer to 1 than float32 tells."""
    capped = np.minimum(log_prob, np.log1p(-(2.0**-24)))
    found: Float[ndarray, " token"] = capped - np.log(-np.expm1(capped))
    return found
