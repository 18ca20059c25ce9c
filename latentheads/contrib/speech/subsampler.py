"""Two strided convolutions that subsample speech by four, independent of padding.

The subsampler of fairseq S2T (Wang et al. 2020, https://arxiv.org/abs/2010.05171). There the second
convolution takes in what the first computed at padding, so that the last position of an utterance
depends on the lengths of the other utterances in its batch. Here padding is set to zero before each
convolution.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

STRIDE, WIDTH = 2, 5
"""Stride and width of both convolutions."""

FACTOR = STRIDE**2
"""Frames per position."""

Lengths = TypeVar("Lengths", int, Tensor, NDArray[np.int64])


def subsampled_length(lengths: Lengths) -> Lengths:
    """The number of positions after subsampling, for each number of frames."""
    return -(-lengths // FACTOR)


class Subsampler(nn.Module):
    """Maps frames to a quarter as many states.

    Args:
        bins: Coefficients of a frame.
        channels: Outputs of the first convolution, half of which gate the other half (GLU).
        width: Width of the states.
    """

    def __init__(self, bins: int, channels: int, width: int) -> None:
        super().__init__()
        half = WIDTH // 2
        self.first = nn.Conv1d(bins, channels, WIDTH, STRIDE, half)
        self.second = nn.Conv1d(channels // 2, 2 * width, WIDTH, STRIDE, half)

    def forward(
        self, frames: Float[Tensor, "*batch frame bin"], lengths: Int[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch position dim"]:
        """Subsamples; states past the end of an utterance are undefined."""
        x = frames.to(self.first.weight.dtype).transpose(-1, -2)
        for convolution in (self.first, self.second):
            valid = torch.arange(x.shape[-1], device=x.device) < lengths.unsqueeze(-1)
            x = F.glu(convolution(x * valid.unsqueeze(-2)), dim=-2)
            lengths = -(-lengths // STRIDE)
        return x.transpose(-1, -2)
