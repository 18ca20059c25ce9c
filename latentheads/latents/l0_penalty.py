"""The L0 penalty of active heads in training; what Louizos et al. (2018) call lambda."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class L0Penalty(nn.Module):
    """The L0 penalty of an open gate in training, in nats for the whole data set; a buffer."""

    value: Tensor

    def __init__(self, value: float = 0.0) -> None:
        super().__init__()
        self.register_buffer("value", torch.tensor(float(value)))

    def forward(self) -> float | Tensor:
        """The penalty; 0 in evaluation."""
        return self.value if self.training else 0.0
