"""Percentile intervals of means, by bootstrap over prompts or heads."""

from __future__ import annotations

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
