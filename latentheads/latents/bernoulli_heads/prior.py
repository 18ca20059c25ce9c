r"""Priors of the gates of all blocks: independent, autoregressive over heads, or cascaded.

.. math:: \mathrm{logit}\, p(b_h = 1 \mid b_{<h}) = a_h + \sum_{j < h} W_{hj} b_j

Independent gates have a fixed rate :math:`\rho`, so that :math:`a = \mathrm{logit}\,\rho` and
:math:`W = 0`. All others start there and are learned: autoregressive gates depend on earlier heads
of their block, cascaded ones on the heads of lower blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from latentheads.latents.bernoulli_heads.subsets import SubsetTable, logistic_chain

Prior = Literal["independent", "autoregressive", "cascaded"]
"""Which other heads the prior of a head is conditioned on."""


def dependence_mask(heads: Sequence[int], structure: str) -> Bool[Tensor, "head before"]:
    """True where a head (row) is conditioned on an earlier one (column).

    Args:
        heads: Heads of every block, from the lowest.
        structure: autoregressive: on earlier heads of its block; cascaded: on those of lower
            blocks; any other: on none.
    """
    block = torch.repeat_interleave(torch.arange(len(heads)), torch.tensor(list(heads)))
    earlier = torch.ones(len(block), len(block), dtype=torch.bool).tril(-1)
    same_block = block[:, None] == block
    if structure == "autoregressive":
        return earlier & same_block
    return earlier & ~same_block & (structure == "cascaded")


class SubsetPrior(nn.Module):
    """The prior of the gates of all blocks.

    Args:
        heads: Heads of every block, from the lowest.
        structure: Which other heads a head is conditioned on.
        rate: The probability of a head to be active: fixed if heads are independent, else that at
            the start of training.
    """

    mask: Tensor

    def __init__(self, heads: Sequence[int], structure: Prior, rate: float) -> None:
        super().__init__()
        self.heads = list(heads)
        start = torch.full((sum(heads),), math.log(rate / (1 - rate)))
        is_fixed = structure == "independent"
        self.logits = nn.Parameter(start, requires_grad=not is_fixed)
        mask = dependence_mask(heads, structure)
        self.register_buffer("mask", mask, persistent=False)
        self.weight = None if is_fixed else nn.Parameter(torch.zeros(mask.shape))

    def forward(self) -> list[SubsetTable]:
        """The distribution of every block's gates, given those of lower blocks."""
        mask = self.mask.to(self.logits.dtype)
        weight = mask if self.weight is None else mask * self.weight
        return chain_tables(self.logits, weight, self.heads)


def chain_tables(logits: Tensor, weight: Tensor, heads: Sequence[int]) -> list[SubsetTable]:
    """The table of every block of a logistic chain over the heads of all blocks.

    Args:
        logits: The logit of every head when no earlier head is active.
        weight: The change of each logit (row) by each earlier head (column); elsewhere zero.
        heads: Heads of every block, from the lowest.
    """
    tables, first = [], 0
    for number in heads:
        rows = slice(first, first + number)
        tables.append(logistic_chain(logits[..., rows], weight[..., rows, : first + number]))
        first += number
    return tables
