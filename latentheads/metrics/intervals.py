"""What several runs of one thing say together: their mean, and how sure it is."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["interval"]


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean and 95 % interval of Student's t; the interval is NaN for a single value."""
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, math.nan, math.nan
    from scipy import stats  # takes long to load

    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    return mean, mean - half, mean + half
