"""Locations: the mean of a block's heads, given a :class:`HeadContext`.

The cascade is that of Zheng, Wu and Kong 2021, https://aclanthology.org/2021.acl-long.45 (their
code: https://github.com/LZhengisme/CODA), the running sum that of RealFormer (He, Ravula, Kanagal
and Ainslie 2020, https://arxiv.org/abs/2012.11747).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from latentheads.distributions.heads import HeadContext
from latentheads.families.family import Dependence
from latentheads.families.fusion import Fusion
from latentheads.names import Block


class Location(nn.Module, ABC):
    """The rule for the mean of a block's logits: the scores ``c`` plus a shift.

    Attributes:
        dependence: What the mean of one head depends on.
    """

    dependence = Dependence()

    def prune(self, heads: Sequence[int]) -> None:
        """Removes the parameters of all other heads, as :meth:`Family.prune` does."""

    @abstractmethod
    def shift(self, context: HeadContext) -> Float[Tensor, "*batch head query key"] | None:
        """Computes what is added to the scores; None for nothing."""

    def shift_and_squares(self, context: HeadContext) -> tuple[Tensor | None, Tensor | None]:
        """Computes the shift, and where it is cheap its squares summed over heads at every pair."""
        return self.shift(context), None

    def forward(self, context: HeadContext) -> Float[Tensor, "*batch head query key"]:
        """Computes the mean."""
        shift = self.shift(context)
        return context.scores if shift is None else context.scores + shift


class Identity(Location):
    """``mu = c``: what the network computes without noise."""

    dependence = Dependence(across_heads=False, on_lower_logits=False)

    def shift(self, context: HeadContext) -> None:
        return None


class RunningSum(Location):
    """``mu = c + below``: RealFormer's residual."""

    dependence = Dependence(across_heads=False)

    def shift(self, context: HeadContext) -> Tensor | None:
        return context.below


class Cascade(Location):
    """``mu = c + sigma(below)``, eq. 4 of the paper.

    Args:
        block: The block; the first of its attention type has nothing below and no parameters.
        hidden: Hidden units of the fusion for each head, the paper's alpha.
        link: Whether sigma has the residual link of App. A, ``sigma(z) = z + MLP(z)``.
        zero: Initialise the fusion at zero.
    """

    def __init__(
        self, block: Block, hidden: int = 4, link: bool = True, zero: bool = False
    ) -> None:
        super().__init__()
        self.link = link
        self.fusion = None if block.is_lowest else Fusion(block.heads, hidden, zero=zero)

    def shift(self, context: HeadContext) -> Tensor | None:
        if self.fusion is None or context.below is None:
            return None
        return self.fusion(context.below, self.link)

    def shift_and_squares(self, context: HeadContext) -> tuple[Tensor | None, Tensor | None]:
        if self.fusion is None or context.below is None:
            return None, None
        return self.fusion.forward_and_squares(context.below, self.link)


class ReleasedCascade(Location):
    """``mu = c + below + sigma(c + below)``: what the authors' code computes.

    Args:
        block: The block. The released code also gives the first block of each attention type a
            fusion that is never used; here it has none.
    """

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.fusion = None if block.is_lowest else Fusion(block.heads, hidden=4, layers=3)

    def shift(self, context: HeadContext) -> Tensor | None:
        if self.fusion is None or context.below is None:
            return None
        return context.below + self.fusion(context.scores + context.below)


class OwnMLP(Location):
    """``mu = c + MLP(c)`` over the heads of a pair; initialised at the scores.

    Args:
        heads: Number of heads H.
        hidden: Hidden units for each head.
    """

    dependence = Dependence(on_lower_logits=False)

    def __init__(self, heads: int, hidden: int) -> None:
        super().__init__()
        self.fusion = Fusion(heads, hidden, zero=True)

    def shift(self, context: HeadContext) -> Tensor:
        return self.fusion(context.scores)

    def shift_and_squares(self, context: HeadContext) -> tuple[Tensor, Tensor]:
        return self.fusion.forward_and_squares(context.scores)


class Affine(Location):
    r""":math:`\mu = c + a \odot c + b` for the outputs c of n-gram heads; initialised at c.

    Args:
        heads: Number of heads H.
        size: Width of a head's output.
    """

    dependence = Dependence(across_heads=False, on_lower_logits=False)

    def __init__(self, heads: int, size: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.zeros(heads, 1, size))
        self.bias = nn.Parameter(torch.zeros(heads, 1, size))

    def shift(self, context: HeadContext) -> Tensor:
        return context.scores * self.gain + self.bias

    @torch.no_grad()
    def prune(self, heads: Sequence[int]) -> None:
        self.gain, self.bias = (nn.Parameter(x[list(heads)]) for x in (self.gain, self.bias))
