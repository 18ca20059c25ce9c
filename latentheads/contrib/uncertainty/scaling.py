r"""Temperature scaling and Platt scaling, fitted on held-out text.

- Temperature scaling divides log-probabilities by T and renormalises (Guo et al. 2017,
  https://arxiv.org/abs/1706.04599). T maximises the likelihood. The derivative with respect to
  :math:`\beta = 1 / T`, :math:`\sum_i \log p_i(y_i) - \mathbb E_\beta[\log p_i]`, is decreasing, so
  its root is interpolated between two values of a grid.
- Platt scaling, :math:`\sigma(a \log\frac{p}{1 - p} + b)`, calibrates the probability of a binary
  outcome, such as whether a token of a translation is correct (Platt 1999).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from latentheads.contrib.uncertainty.prediction import MIN_LOG_PROB

INVERSE_TEMPERATURES = torch.logspace(-1, 1, 41, 3.0, dtype=torch.float64, device="cpu")
"""Grid of inverse temperatures from 1/3 to 3: neighbours differ by 6 %."""

MIN_TEMPERATURE, MAX_TEMPERATURE = (
    1 / float(INVERSE_TEMPERATURES[-1]),
    1 / float(INVERSE_TEMPERATURES[0]),
)
"""The range of temperatures."""

STEPS = 50
"""Most steps of Newton's method."""


class TemperatureFit:
    """Fits the temperature of the highest likelihood, batch by batch."""

    def __init__(self) -> None:
        self.slopes = torch.zeros_like(INVERSE_TEMPERATURES)

    def add(self, log_probs: Float[Tensor, "token vocab"], targets: Int[Tensor, " token"]) -> None:
        """Adds a batch."""
        log_probs = log_probs.clamp_min(MIN_LOG_PROB)
        target_log_prob = log_probs.gather(-1, targets[:, None])[:, 0].double().sum()
        for index, inverse in enumerate(INVERSE_TEMPERATURES.tolist()):
            probs = (log_probs * inverse).softmax(-1)
            expected = torch.einsum("tv,tv->", probs, log_probs)
            self.slopes[index] += (target_log_prob - expected.double()).cpu()

    @property
    def temperature(self) -> float:
        """The best temperature in the range; 1 if no batch was added."""
        slopes = self.slopes.tolist()
        inverses = INVERSE_TEMPERATURES.tolist()
        if not any(slopes):
            return 1.0
        if slopes[0] <= 0:
            return MAX_TEMPERATURE
        pairs = zip(slopes, slopes[1:], inverses, inverses[1:], strict=False)
        for slope, next_slope, inverse, next_inverse in pairs:
            if next_slope <= 0:
                step = (next_inverse - inverse) * slope / (slope - next_slope)
                return 1 / (inverse + step)
        return MIN_TEMPERATURE


@dataclass(frozen=True)
class PlattScaling:
    """Platt scaling: an affine function of the log-odds."""

    slope: float
    offset: float

    def __call__(self, log_prob: Float[ndarray, " token"]) -> Float[ndarray, " token"]:
        """The calibrated probability that each token is correct."""
        return _sigmoid(self.slope * _log_odds(log_prob) + self.offset)


def fit_platt_scaling(
    log_prob: Float[ndarray, " token"], correct: Bool[ndarray, " token"]
) -> PlattScaling:
    """Fits Platt scaling by maximum likelihood with a damped Newton method.

    A step that would lower the likelihood is halved until it does not: a full step may overshoot
    where nearly all probabilities are close to 1.

    Outcomes are smoothed away from 0 and 1, as Platt does, so that the solution is finite for
    separable data.

    Args:
        log_prob: The log-probability of each token.
        correct: Whether it is correct.
    """
    positives, negatives = correct.sum(), (~correct).sum()
    outcome = np.where(correct, (positives + 1) / (positives + 2), 1 / (negatives + 2))
    log_odds = _log_odds(log_prob)
    inputs = np.stack([log_odds, np.ones_like(log_odds)])
    weights = np.array([0.0, np.log(outcome.mean() / (1 - outcome.mean()))])
    log_likelihood = _log_likelihood(weights @ inputs, outcome)
    for _ in range(STEPS):
        probability = _sigmoid(weights @ inputs)
        gradient = inputs @ (outcome - probability)
        hessian = (inputs * (probability * (1 - probability))) @ inputs.T
        step = np.linalg.lstsq(hessian, gradient, rcond=None)[0]
        while (new := _log_likelihood((weights + step) @ inputs, outcome)) < log_likelihood:
            step = step / 2
        weights, log_likelihood = weights + step, new
        if np.abs(step).max() < 1e-10:
            break
    return PlattScaling(float(weights[0]), float(weights[1]))


def _sigmoid(x: Float[ndarray, " token"]) -> Float[ndarray, " token"]:
    """``1 / (1 + exp(-x))`` without overflow."""
    probability: Float[ndarray, " token"] = np.exp(-np.logaddexp(0.0, -x))
    return probability


def _log_likelihood(log_odds: Float[ndarray, " token"], outcome: Float[ndarray, " token"]) -> float:
    """The log-likelihood of outcomes under log-odds."""
    return float((outcome * log_odds - np.logaddexp(0.0, log_odds)).sum())


def _log_odds(log_prob: Float[ndarray, " token"]) -> Float[ndarray, " token"]:
    """Log p / (1 - p), with p capped just below 1, at the resolution of float32."""
    capped = np.minimum(log_prob, np.log1p(-(2.0**-24)))
    log_odds: Float[ndarray, " token"] = capped - np.log(-np.expm1(capped))
    return log_odds
