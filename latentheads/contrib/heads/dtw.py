"""Dynamic time warping of averaged heads: how Whisper's own code computes the times of words."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

MEDIAN_WIDTH = 7
"""Positions of Whisper's median filter."""


def dtw_starts(
    weights: Float[Tensor, "head row position"], median_width: int = MEDIAN_WIDTH
) -> Float[np.ndarray, " row"]:
    """The position at which the path enters each row.

    Heads are standardised over rows, smoothed and averaged; the path is that of least cost.

    Args:
        weights: Attention of the heads that are averaged; a row is a token, or a word.
        median_width: Width of the median filter, odd.
    """
    scores = weights.float()
    deviation = scores.std(-2, keepdim=True, unbiased=False)
    scores = (scores - scores.mean(-2, keepdim=True)) / deviation
    scores = median_filter(scores, median_width).mean(0)
    return warp(-scores.double().numpy())


def median_filter(
    values: Float[Tensor, "*batch position"], width: int
) -> Float[Tensor, "*batch position"]:
    """The median of ``width`` positions around each, reflected at both ends."""
    half = width // 2
    if values.shape[-1] <= half:
        return values
    padded = F.pad(values, (half, half, 0, 0), mode="reflect")
    return padded.unfold(-1, width, 1).sort().values[..., half]


def warp(cost: Float[np.ndarray, "row position"]) -> Float[np.ndarray, " row"]:
    """The first position of each row on the cheapest monotone path through all cells.

    Args:
        cost: Cost of each cell. A step goes to the next row, position, or both.
    """
    rows, positions = cost.shape
    total = np.full((rows + 1, positions + 1), np.inf, np.float32)  # as Whisper sums
    total[0, 0] = 0
    step = np.full((rows + 1, positions + 1), 2, np.int8)
    step[:, 0] = 1
    # cells of one antidiagonal do not depend on each other
    for diagonal in range(2, rows + positions + 1):
        i = np.arange(max(1, diagonal - positions), min(rows, diagonal - 1) + 1)
        j = diagonal - i
        both, down, right = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
        is_both = (both < down) & (both < right)
        is_down = ~is_both & (down < both) & (down < right)
        choice = np.where(is_both, 0, np.where(is_down, 1, 2))
        total[i, j] = cost[i - 1, j - 1] + np.choose(choice, (both, down, right))
        step[i, j] = choice
    step[0, :] = 2
    starts = np.zeros(rows)
    i, j = rows, positions
    while i > 0 or j > 0:
        if i > 0:
            starts[i - 1] = max(j - 1, 0)  # the last one seen is the first of the row
        move = step[i, j]
        i, j = i - (move != 2), j - (move != 1)
    return starts
