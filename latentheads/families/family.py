"""Families: conditional distributions of a block's heads. Priors and posteriors are both families.

A family is what zuko calls a ``LazyDistribution``: a module that maps a context to a distribution.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, cast

import torch
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor, nn

from latentheads.distributions import (
    CholeskyHeads,
    DeltaHeads,
    HeadContext,
    HeadVariable,
    NormalHeads,
)
from latentheads.distributions.heads import is_expandable
from latentheads.errors import shown
from latentheads.families.location import Dependence, Location
from latentheads.families.scale import CholeskyFactor, HeadScale


class Family(nn.Module, ABC):
    """A conditional distribution of a block's heads, given a :class:`HeadContext`."""

    @property
    def dependence(self) -> Dependence:
        """What one head may depend on: by default all heads and the logits below."""
        return Dependence()

    def prune(self, heads: Sequence[int]) -> None:
        """Removes the parameters of all other heads.

        It is called only where no head depends on another.
        """

    @abstractmethod
    def forward(self, context: HeadContext) -> HeadVariable:
        """Builds the distribution of the logits of all heads."""


def check_family(maker: str, family: Any) -> Family:
    """Checks that a value is a family."""
    if not isinstance(family, nn.Module):
        raise ValueError(
            f"{maker} a Family, such as Gaussian(Identity(), HeadScale(block.heads, 0.5, "
            f"learned=True)), got {shown(family)}"
        )
    return cast(Family, family)


def check_head_distribution(site: str, distribution: Any, shape: Sequence[int]) -> None:
    """Checks that a value is a distribution of a block's heads.

    Raises:
        ValueError: The value is not a distribution, or has another shape.
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


def check_positive_scale(site: str, guide: str, posterior: Any) -> None:
    """Checks the values of a posterior's scale.

    Raises:
        ValueError: One is not positive.
    """
    scale = getattr(posterior, "scale", None)
    if isinstance(scale, Tensor) and not (scale > 0).all():
        raise ValueError(
            f"site {site!r}: the scale of the posterior of {guide} must be positive, "
            f"got {float(scale.min()):g}"
        )


class Gaussian(Family):
    """Normal heads: a location, and a scale that is learned for each head or constant."""

    def __init__(self, location: Location, scale: HeadScale) -> None:
        super().__init__()
        self.location = location
        self.scale = scale

    @property
    def dependence(self) -> Dependence:
        """The dependence of the location."""
        return self.location.dependence

    def prune(self, heads: Sequence[int]) -> None:
        """Removes the location's and the scale's parameters of all other heads."""
        self.location.prune(heads)
        self.scale.prune(heads)

    def forward(self, context: HeadContext) -> NormalHeads:
        """Builds ``N(location, scale^2)``."""
        if context.batch is None:  # a prior: only the KL of a posterior needs the squares
            shift, squares = self.location.shift(context), None
        else:
            shift, squares = self.location.shift_and_squares(context)
        location = context.scores if shift is None else context.scores + shift
        return NormalHeads(location, context, self.scale(), squares)


class Point(Family):
    """Deterministic heads: a point mass at the location."""

    def __init__(self, location: Location) -> None:
        super().__init__()
        self.location = location

    @property
    def dependence(self) -> Dependence:
        """The dependence of the location."""
        return self.location.dependence

    def forward(self, context: HeadContext) -> DeltaHeads:
        """Builds the point mass at the location."""
        return DeltaHeads(self.location(context), context)


class Correlated(Family):
    """Normal heads that are linear in the heads before them: ``z = mu + L noise``."""

    def __init__(self, location: Location, factor: CholeskyFactor) -> None:
        super().__init__()
        self.location = location
        self.factor = factor

    @property
    def dependence(self) -> Dependence:
        """All heads of the block, and what the location depends on."""
        return Dependence(on_lower_logits=self.location.dependence.on_lower_logits)

    def forward(self, context: HeadContext) -> CholeskyHeads:
        """Builds the full-covariance Gaussian over the heads of every pair."""
        return CholeskyHeads(self.location(context), context, self.factor())
