"""Two convolutions that leave a quarter of the positions, and mind where each utterance ends.

The subsampler of fairseq S2T (Wang et al. 2020, https://arxiv.org/abs/2010.05171). There the second
convolution reads what the first has written into the padding, so that the last position of an
utterance depends on how long the others of its batch are. Here padding is zero before each of them.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["FACTOR", "Subsampler", "subsampled_length"]

STRIDE, WIDTH = 2, 5
"""Stride and width of both convolutions."""

FACTOR = STRIDE**2
"""Frames that a position stands for."""

Lengths = TypeVar("Lengths", int, Tensor, NDArray[np.int64])


def subsampled_length(lengths: Lengths) -> Lengths:
    """How many positions are left of each number of frames."""
    return -(-lengths // FACTOR)


class Subsampler(nn.Module):
    """Frames to a quarter as many states.

    Args:
        bins: Coefficients of a frame.
        channels: Outputs of the first convolution, half of which gate the other half.
        width: Of the states.
    """

    def __init__(self, bins: int, channels: int, width: int) -> None:
        super().__init__()
        half = WIDTH // 2
        self.first = nn.Conv1d(bins, channels, WIDTH, STRIDE, half)
        self.second = nn.Conv1d(channels // 2, 2 * width, WIDTH, STRIDE, half)

    def forward(
        self, frames: Float[Tensor, "*batch frame bin"], lengths: Int[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch position dim"]:
        """Subsamples; what stands behind an utterance's own end is of no meaning.

        Args:
            frames: Padded behind each utterance's end.
            lengths: Frames of each utterance.
        """
        x = frames.to(self.first.weight.dtype).transpose(-1, -2)
        for convolution in (self.first, self.second):
            valid = torch.arange(x.shape[-1], device=x.device) < lengths.unsqueeze(-1)
            x = F.glu(convolution(x * valid.unsqueeze(-2)), dim=-2)
            lengths = -(-lengths // STRIDE)
        return x.transpose(-1, -2)
