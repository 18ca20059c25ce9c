"""The posterior of the selection: one learned logit per task and candidate."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from latentheads.latents.selection.distribution import Selection

__all__ = ["SelectionFamily"]

START = 0.01
"""Standard deviation of the initial parameters, which breaks ties between candidates."""


class SelectionFamily(nn.Module):
    """q(selection) of one block: the class of its prior, with learned logits.

    The parameter is ``logits / gain``: an optimiser whose steps do not depend on the size of the
    gradient, such as Adam, moves the logits ``gain`` times as far as a weight.

    Attributes:
        temperature: Temperature of the relaxation that gives the gradient; None: samples have none.

    Args:
        make_distribution: Makes the distribution from logits and a temperature.
        start: The initial logits, up to noise.
        gain: Ratio of logit and parameter.
    """

    def __init__(
        self,
        make_distribution: Callable[[Tensor, float | None], Selection],
        start: Float[Tensor, "task candidate"],
        gain: float,
    ) -> None:
        super().__init__()
        self.make_distribution, self.gain = make_distribution, gain
        self.temperature: float | None = 1.0
        self.weight = nn.Parameter(start / gain + START * torch.randn_like(start))

    @property
    def logits(self) -> Float[Tensor, "task candidate"]:
        """The logit of every candidate, for every task."""
        return self.gain * self.weight

    def forward(self) -> Selection:
        """Makes the distribution of every task's selection."""
        return self.make_distribution(self.logits, self.temperature)
