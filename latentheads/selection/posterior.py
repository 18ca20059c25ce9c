"""The posterior of which heads speak for each task: parameters of its own, one a candidate."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from latentheads.selection.laws import Selection
from latentheads.selection.selector import Selector

__all__ = ["SelectionFamily"]


class SelectionFamily(nn.Module):
    """q(selection) of one block, the law of its prior with learned logits.

    The parameter is the logits over the selector's gain: an optimiser whose steps do not depend on
    a gradient's size, such as Adam, moves the logits so many times as far as a weight.

    Attributes:
        temperature: Of the relaxation that gives the gradient; None: draws have none.

    Args:
        selector: The block's.
        chain: The block's.
        like: A tensor of the model, for type and device.
    """

    def __init__(self, selector: Selector, chain: str, like: Tensor) -> None:
        super().__init__()
        self.selector = selector
        self.temperature: float | None = 1.0
        start = selector.start(chain, like.detach())
        self.weight = nn.Parameter(start / selector.gain + START * torch.randn_like(start))

    @property
    def logits(self) -> Float[Tensor, "task candidate"]:
        """Of every candidate, for every task."""
        return self.selector.gain * self.weight

    def forward(self) -> Selection:
        """The law of every task."""
        return self.selector.distribution(self.logits, self.temperature)


START = 0.01
"""Spread of the parameter at the start: which of two equal candidates is the likelier is chance."""
