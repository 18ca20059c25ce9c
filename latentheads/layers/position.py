"""Sinusoidal positions, Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 3.5.

As in the released code of tensor2tensor and fairseq, wavelengths end at 2 pi 10000 exactly, and all
sines come before all cosines; in the paper they alternate, with exponents 2i / d.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor


def sinusoidal_positions(
    length: int, width: int, device: torch.device, dtype: torch.dtype
) -> Float[Tensor, "length width"]:
    """Sinusoidal positions: sines in the first half of the width, cosines in the second."""
    half, exact = width // 2, torch.promote_types(dtype, torch.float32)  # whatever the default is
    rate = torch.arange(half, dtype=exact, device=device) * (-math.log(10_000.0) / max(half - 1, 1))
    angle = torch.arange(length, device=device)[:, None] * rate.exp()
    return torch.cat([angle.sin(), angle.cos()], 1).to(dtype)
