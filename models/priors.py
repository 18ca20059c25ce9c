"""Priors p(z_l | what lies below, x) by name: how a model draws a block's heads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from latentheads.families import (
    Below,
    CholeskyFactor,
    Correlated,
    Family,
    Fused,
    Gaussian,
    HeadScale,
    Point,
    Released,
    Scores,
)
from latentheads.names import Block

__all__ = ["PRIORS", "Prior", "PriorOptions", "make_prior"]

Prior = Callable[[Block], Family]
"""Makes the prior family of each block."""


@dataclass(frozen=True)
class PriorOptions:
    """What the Gaussian priors take.

    Attributes:
        scale: Standard deviation of the prior's noise; the papers fix it at 1.
        learned_scale: Learn the scale, one number a head.
        alpha: Hidden width of the cascaded prior's fusion over the number of heads (the paper
            chooses from 2, 4, 8); the released prior's is 4.
    """

    scale: float = 1.0
    learned_scale: bool = False
    alpha: int = 4

    def __post_init__(self) -> None:
        if self.scale <= 0:
            raise ValueError(f"prior scale must be positive, got {self.scale}")
        if self.alpha < 1:
            raise ValueError(f"prior alpha must be at least 1, got {self.alpha}")

    def head_scale(self, block: Block) -> HeadScale:
        """The scale of a block's noise."""
        return HeadScale(block.heads, self.scale, self.learned_scale)


PRIORS: dict[str, Callable[[Block, PriorOptions], Family]] = {
    "delta": lambda block, options: Point(Scores()),
    "residual": lambda block, options: Point(Below()),
    "independent": lambda block, options: Gaussian(Scores(), options.head_scale(block)),
    "autoregressive": lambda block, options: Correlated(
        Scores(), CholeskyFactor(block.heads, options.scale, options.learned_scale)
    ),
    "cascaded": lambda block, options: Gaussian(
        Fused(block, options.alpha), options.head_scale(block)
    ),
    "released": lambda block, options: Gaussian(Released(block), options.head_scale(block)),
}
"""Location and noise: scores without noise; scores + below without noise; scores; scores, each
head linear in the heads before; scores + fusion(below); scores + below + fusion(scores + below)."""


def make_prior(name: str, options: PriorOptions | None = None) -> Prior:
    """Looks up a prior and binds its options."""
    if name not in PRIORS:
        raise ValueError(f"unknown prior {name!r}: choose from {', '.join(PRIORS)}")
    chosen = options or PriorOptions()
    return lambda block: PRIORS[name](block, chosen)
