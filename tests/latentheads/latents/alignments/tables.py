"""States, positions and an output table, and a softmax for every entry."""

from __future__ import annotations

import torch
from torch import Tensor

N, T, S, DIM, TYPES = 3, 5, 7, 2, 13


def inputs(heads: int, size: float) -> tuple[Tensor, list[Tensor], Tensor, Tensor]:
    torch.manual_seed(heads)
    states = size * torch.randn(N, T, DIM, dtype=torch.float64)
    lexicons = [size * torch.randn(N, S, DIM, dtype=torch.float64) for _ in range(heads)]
    weight = torch.randn(TYPES, DIM, dtype=torch.float64)
    for tensor in (states, weight, *lexicons):
        tensor.requires_grad_()
    return states, lexicons, weight, torch.randint(TYPES, (N, T))


def naive(states: Tensor, lexicons: list[Tensor], weight: Tensor) -> Tensor:
    """Log-softmax of every sum of a state and its positions."""
    rows = states[:, :, None] + lexicons[0][:, None]
    if len(lexicons) == 2:
        rows = rows[..., None, :] + lexicons[1][:, None, None]
    return (rows @ weight.mT).log_softmax(-1)


def look_up(distributions: Tensor, words: Tensor) -> Tensor:
    index = words.view(N, T, *(1,) * (distributions.ndim - 2)).expand(*distributions.shape[:-1], 1)
    return distributions.gather(-1, index)[..., 0]
