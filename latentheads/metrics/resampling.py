r"""What resampling the sentences says of a figure: intervals, and tests of systems in pairs.

Koehn 2004, https://aclanthology.org/W04-3250. The same resampled sentences are taken for all
systems, so that what is hard in a sentence falls out of a difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sacrebleu.significance import estimate_ci

__all__ = ["FEWEST_RESAMPLES", "Estimate", "Resampled", "draw_places", "estimate_systems"]

FEWEST_RESAMPLES = 40

Resampled = tuple[float, NDArray[np.float64]]
"""A figure of all sentences, and that of every resample."""


@dataclass(frozen=True)
class Estimate:
    """A score of one system and what resampling the sentences says about it.

    Attributes:
        score: Of the whole corpus.
        mean: Over the resamples.
        half_width: Of the 95 % interval around ``mean``.
        p: Of no difference to the baseline, both sides; None for the baseline itself.
        signature: How the score was computed, with the number of resamples and their seed.
    """

    score: float
    mean: float
    half_width: float
    p: float | None
    signature: str

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval."""
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        """Upper end of the 95 % interval."""
        return self.mean + self.half_width


def draw_places(number: int, resamples: int, seed: int) -> NDArray[np.int64]:
    """Draws resamples: for each, the places of as many sentences as there are.

    Args:
        number: Sentences.
        resamples: How often they are resampled.
        seed: Of the draws.

    Raises:
        ValueError: There are too few resamples for an interval, or the seed is negative.
    """
    if resamples < FEWEST_RESAMPLES:
        raise ValueError(f"resamples must be at least {FEWEST_RESAMPLES}, got {resamples}")
    if seed < 0:
        raise ValueError(f"seed must be at least 0, got {seed}")
    return np.random.default_rng(seed).choice(number, (resamples, number))


def estimate_systems(every: Sequence[Resampled], signature: str) -> list[Estimate]:
    r"""One score of all systems, the first of them the baseline.

    With the difference d to the baseline on all sentences and d_b on resample b, the test counts

    .. math:: p = \frac{1 + \#\{b : |d_b - \bar d| \ge |d|\}}{B + 1}

    which looks at both sides. sacreBLEU's own paired bootstrap takes ``|d_b|`` before the mean is
    subtracted, so that its p is about half as large.

    Args:
        every: The score of every system, on all sentences and on the same resamples.
        signature: How it was computed.
    """
    (first, baseline), *_ = every
    estimates = []
    for score, resampled in every:
        differences = resampled - baseline
        away = np.abs(differences - differences.mean()) >= abs(score - first)
        p = (1 + int(away.sum())) / (len(resampled) + 1)
        mean, half = estimate_ci(resampled)
        estimates.append(Estimate(score, float(mean), float(half), p, signature))
    estimates[0] = replace(estimates[0], p=None)
    return estimates
