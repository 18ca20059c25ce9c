"""Learned scores of the jumps between the positions of two heads, or of two words."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from latentheads.layers.numeric import full_precision


class Jumps(nn.Module):
    """A learned score for each jump from one position to another; initialised to zero.

    Args:
        max_jump: The largest jump with a score of its own; longer ones share it.
    """

    def __init__(self, max_jump: int) -> None:
        super().__init__()
        self.reach = max_jump
        self.value = nn.Parameter(torch.zeros(2 * max_jump + 1))

    def forward(self, keys: int) -> Float[Tensor, "before key"]:
        """The score of every pair of positions."""
        positions = torch.arange(keys, device=self.value.device)
        jump = (positions - positions[:, None]).clamp(-self.reach, self.reach)
        return full_precision(self.value)[jump + self.reach]


class JumpsAfterNull(Jumps):
    """Scores of jumps where the first key is null, which is not a position.

    There is one score for staying at null and one for going there from a position. Leaving null is
    equally likely for all positions, and needs no score.

    Args:
        max_jump: The largest jump with a score of its own.
    """

    def __init__(self, max_jump: int) -> None:
        super().__init__(max_jump)
        self.null = nn.Parameter(torch.zeros(2))

    def forward(self, keys: int) -> Float[Tensor, "before key"]:
        """The score of every pair of keys; the first is null."""
        stay, enter = full_precision(self.null)
        to_null = torch.cat([stay[None], enter.expand(keys - 1)])
        others = F.pad(super().forward(keys - 1), (0, 0, 1, 0))
        return torch.cat([to_null[:, None], others], 1)
