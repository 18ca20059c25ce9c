"""Dynamic time warping of averaged heads, as ``find_alignment`` of OpenAI's Whisper has it."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

MEDIAN_WIDTH = 7
"""Positions of Whisper's median filter."""

ALL = slice(None)
"""All rows."""


def dtw_starts(
    weights: Float[Tensor, "head row position"],
    rows: slice = ALL,
) -> Float[np.ndarray, " row"]:
    """The position at which the path enters each of the rows that are warped.

    Attention is that within the given positions, so that each row of a head is divided by its sum.
    Heads are standardised over all rows, smoothed and averaged; the path is that of least cost
    through ``rows``. OpenAI's code gives the rows of all tokens, start and end too, at the
    positions of the sound, and warps those that predict the text and its end. ``transformers``
    does not divide, and standardises over the rows of generated tokens alone.

    Args:
        weights: Attention of the heads that are averaged; a row is a token, or a word.
        rows: The rows that are warped.
    """
    return warp_average(smooth_heads(normalise(weights))[:, rows])


def normalise(
    weights: Float[Tensor, "*head row position"],
) -> Float[Tensor, "*head row position"]:
    """Attention within the positions that are given: rows are divided by their sum."""
    return F.normalize(weights.float(), p=1, dim=-1)


def smooth_heads(
    weights: Float[Tensor, "head row position"],
) -> Float[Tensor, "head row position"]:
    """Heads that are standardised over rows, and smoothed over positions."""
    deviation, mean = torch.std_mean(weights, -2, keepdim=True, unbiased=False)
    # a position with one weight in all rows, as 0 in half precision, has no information on them
    standard = torch.where(deviation > 0, (weights - mean) / deviation, 0.0)
    return median_filter(standard, MEDIAN_WIDTH)


def warp_average(smooth: Float[Tensor, "head row position"]) -> Float[np.ndarray, " row"]:
    """The first position of each row on the path through the mean of :func:`smooth_heads`."""
    return warp(-smooth.mean(0).double().numpy())


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
