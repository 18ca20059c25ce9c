"""The posterior of which heads speak for each task: parameters of its own, one a candidate."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from latentheads.selection.distribution import Selection

__all__ = ["SelectionFamily"]

START = 0.01
"""Spread of the parameter at the start: which of two equal candidates is the likelier is chance."""


class SelectionFamily(nn.Module):
    """q(selection) of one block, the law of its prior with learned logits.

    The parameter is the logits over a gain: an optimiser whose steps do not depend on a gradient's
    size, such as Adam, moves the logits that many times as far as a weight.

    Attributes:
        temperature: Of the relaxation that gives the gradient; None: draws have none.

    Args:
        law: Makes the law from logits and a temperature.
        start: The logits to start near.
        gain: By how much a logit is larger than its parameter.
    """

    def __init__(
        self,
        make_distribution: Callable[[Tensor, float | None], Selection],
        start: Float[Tensor, "task candidate"],
        gain: float,
    ) -> None:
        super().__init__()
        self.law, self.gain = make_distribution, gain
        self.temperature: float | None = 1.0
        self.weight = nn.Parameter(start / gain + START * torch.randn_like(start))

    @property
    def logits(self) -> Float[Tensor, "task candidate"]:
        """Of every candidate, for every task."""
        return self.gain * self.weight

    def forward(self) -> Selection:
        """The law of every task."""
        return self.law(self.logits, self.temperature)
