"""95 % intervals: of means over prompts, and of ratios over the layers of several tasks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

BOOTSTRAP = 2000
"""Resamples of an interval."""


def bootstrap_interval(values: Float[Tensor, " row"]) -> list[float]:
    """The mean of values, and the bounds of its 95 % interval."""
    return [float(x) for (x,) in bootstrap_intervals(values[:, None])]


def bootstrap_intervals(values: Float[Tensor, "row column"]) -> tuple[Tensor, Tensor, Tensor]:
    """The mean of each column, and the bounds of its 95 % interval."""
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(len(values), (BOOTSTRAP, len(values)), generator=generator)
    low, high = values[index].mean(1).quantile(torch.tensor([0.025, 0.975]).to(values), 0)
    return values.mean(0), low, high


def ratio_interval(
    sums: Float[Tensor, " layer"], counts: Float[Tensor, " layer"], tasks: Sequence[str]
) -> list[float]:
    """The ratio of two sums over layers, and the bounds of its 95 % interval over tasks.

    Layers of a task have the same prompts, and the heads of a layer one best subset, so that tasks
    are the units: Student's t of the linearised ratio, for equal counts that of the tasks' ratios.
    There are no bounds from a single task.

    Args:
        sums: The numerator of each layer.
        counts: Its denominator.
        tasks: The task of each layer.
    """
    from scipy import stats  # slow to import

    used = sorted({task for task, count in zip(tasks, counts.tolist(), strict=True) if count})
    ratio = float(sums.sum() / counts.sum())
    if len(used) < 2:
        return [ratio, -math.inf, math.inf]
    residuals = sums - ratio * counts
    of_tasks = [residuals[[task == name for task in tasks]].sum() for name in used]
    variance = float(torch.stack(of_tasks).square().sum()) * len(used) / (len(used) - 1)
    half = float(stats.t.ppf(0.975, len(used) - 1)) * math.sqrt(variance) / float(counts.sum())
    return [ratio, ratio - half, ratio + half]


def wilson_interval(successes: int, number: int) -> list[float]:
    """The bounds of Wilson's 95 % interval of a proportion."""
    from scipy import stats  # slow to import

    interval = stats.binomtest(successes, number).proportion_ci(0.95, "wilson")
    return [float(interval.low), float(interval.high)]
