"""The largest entries of long rows, such as scores of a vocabulary."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

MANY = 2**15
"""Elements from which blocks are searched."""

BLOCK = 64
"""Entries of a block."""


def topk(
    x: Float[Tensor, "*batch entry"], k: int
) -> tuple[Float[Tensor, "*batch k"], Int[Tensor, "*batch k"]]:
    """``x.topk(k)`` over the last dimension, in less time for long rows on a CPU.

    The k largest entries are in the k blocks of the largest maxima. PyTorch vectorises a maximum,
    but reads a row entry by entry to sort it.
    """
    blocks = x.shape[-1] // BLOCK
    if x.device.type != "cpu" or blocks < 4 * k or x.numel() < MANY:
        return x.topk(k, -1)
    end = blocks * BLOCK
    best = x[..., :end].unflatten(-1, (blocks, BLOCK)).amax(-1).topk(k, -1).indices
    index = (best[..., None] * BLOCK + torch.arange(BLOCK)).flatten(-2)
    rest = torch.arange(end, x.shape[-1]).expand(*x.shape[:-1], -1)
    index = torch.cat([index, rest], -1)
    values, order = x.gather(-1, index).topk(k, -1)
    return values, index.gather(-1, order)
