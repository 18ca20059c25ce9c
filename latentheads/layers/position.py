"""Sinusoidal positions, Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 3.5."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor


def sinusoidal_positions(
    length: int, width: int, device: torch.device, dtype: torch.dtype
) -> Float[Tensor, "length width"]:
    """Sinusoidal positions: sines in the first half of the width, cosines in the second."""
    half = width // 2
    rate = torch.exp(torch.arange(half, device=device) * (-math.log(10_000.0) / max(half - 1, 1)))
    angle = torch.arange(length, device=device)[:, None] * rate
    return torch.cat([angle.sin(), angle.cos()], 1).to(dtype)
