"""Families: a conditional distribution of a block's heads. A prior and a posterior are both one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, cast

import torch
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import nn

from latentheads.distributions import (
    CholeskyHeads,
    DeltaHeads,
    HeadContext,
    HeadVariable,
    NormalHeads,
)
from latentheads.distributions.heads import is_expandable
from latentheads.families.location import (
    Dependence,
    Location,
)
from latentheads.families.scale import CholeskyFactor, HeadScale
from latentheads.values import shown

__all__ = ["Correlated", "Family", "Gaussian", "Point"]


class Family(nn.Module, ABC):
    """A conditional distribution of a block's heads given what the block knows."""

    @property
    def dependence(self) -> Dependence:
        """What the law of one head may depend on: anything, unless a subclass knows better."""
        return Dependence()

    def prune(self, heads: Sequence[int]) -> None:
        """Forgets what belongs to other heads; asked only of a family that does not mix them."""

    @abstractmethod
    def forward(self, context: HeadContext) -> HeadVariable:
        """Builds the distribution of the logits of all heads."""


def check_family(maker: str, family: Any) -> Family:
    """Refuses what is no family.

    Args:
        maker: What made it, with its verb, for the message.
        family: What it made.

    Raises:
        ValueError: It is none.
    """
    if not isinstance(family, nn.Module):
        raise ValueError(
            f"{maker} a Family, such as Gaussian(Identity(), HeadScale(block.heads, 0.5, "
            f"learned=True)), got {shown(family)}"
        )
    return cast(Family, family)


def check_head_distribution(site: str, distribution: Any, shape: Sequence[int]) -> None:
    """Refuses a value that is no law of a block's heads.

    Args:
        site: Of the heads, for the message.
        distribution: What a family returned.
        shape: Of what is drawn: ``*batch head query key``.

    Raises:
        ValueError: It is no distribution, or one of another shape.
    """
    if not isinstance(distribution, TorchDistributionMixin):
        raise ValueError(
            f"site {site!r}: a family must return a distribution of heads, such as NormalHeads, "
            f"got {type(distribution).__name__}"
        )
    batch, event = torch.Size(shape[:-3]), torch.Size(shape[-3:])
    if distribution.event_shape != event or not is_expandable(
        torch.Size(distribution.batch_shape), batch
    ):
        raise ValueError(
            f"site {site!r}: a family must return a distribution of heads, queries and keys of "
            f"shape {tuple(event)}, sentences {tuple(batch)}; got shape "
            f"{tuple(distribution.event_shape)}, sentences {tuple(distribution.batch_shape)}"
        )


class Gaussian(Family):
    """Heads around a location, with a scale of their own or a constant one."""

    def __init__(self, location: Location, scale: HeadScale) -> None:
        super().__init__()
        self.location = location
        self.scale = scale

    @property
    def dependence(self) -> Dependence:
        """That of the location."""
        return self.location.dependence

    def prune(self, heads: Sequence[int]) -> None:
        """Forgets the scales of other heads, and what the location has of them."""
        self.location.prune(heads)
        self.scale.prune(heads)

    def forward(self, context: HeadContext) -> NormalHeads:
        """Builds ``N(location, scale^2)``."""
        shift, squares = self.location.measured(context)
        location = context.scores if shift is None else context.scores + shift
        return NormalHeads(location, context, self.scale(), squares)


class Point(Family):
    """Heads without noise: exactly their location."""

    def __init__(self, location: Location) -> None:
        super().__init__()
        self.location = location

    @property
    def dependence(self) -> Dependence:
        """That of the location."""
        return self.location.dependence

    def forward(self, context: HeadContext) -> DeltaHeads:
        """Builds the point mass at the location."""
        return DeltaHeads(self.location(context), context)


class Correlated(Family):
    """Heads that are linear in the heads before them: ``z = mu + L noise``, in one shot."""

    def __init__(self, location: Location, factor: CholeskyFactor) -> None:
        super().__init__()
        self.location = location
        self.factor = factor

    @property
    def dependence(self) -> Dependence:
        """All heads of the block, and what the location reads."""
        return Dependence(on_lower_logits=self.location.dependence.on_lower_logits)

    def forward(self, context: HeadContext) -> CholeskyHeads:
        """Builds the full Gaussian over the heads of every pair."""
        return CholeskyHeads(self.location(context), context, self.factor())
