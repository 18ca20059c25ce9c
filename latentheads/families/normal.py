"""Families of normal heads, and of heads without noise: a location with a scale or a factor."""

from __future__ import annotations

from collections.abc import Sequence

from latentheads.distributions.autoregressive import CholeskyHeads
from latentheads.distributions.heads import HeadContext
from latentheads.distributions.normal import DeltaHeads, NormalHeads
from latentheads.families.family import Dependence, Family
from latentheads.families.location import Location
from latentheads.families.scale import CholeskyFactor, HeadScale


class Gaussian(Family):
    """Normal heads: a location, and a scale that is learned for each head or constant."""

    def __init__(self, location: Location, scale: HeadScale) -> None:
        super().__init__()
        self.location = location
        self.scale = scale

    @property
    def dependence(self) -> Dependence:
        return self.location.dependence

    def prune(self, heads: Sequence[int]) -> None:
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

    has_noise = False

    def __init__(self, location: Location) -> None:
        super().__init__()
        self.location = location

    @property
    def dependence(self) -> Dependence:
        return self.location.dependence

    def prune(self, heads: Sequence[int]) -> None:
        self.location.prune(heads)

    def forward(self, context: HeadContext) -> DeltaHeads:
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


def make_posterior(location: Location, prior: Family | None, heads: int) -> Gaussian:
    """Normal heads whose scales, one a head, are learned from those of the prior on."""
    scale = prior.scale if isinstance(prior, Gaussian) else HeadScale(heads)
    learned = HeadScale(heads, scale.value, learned=True)
    if learned.log is not None and scale.log is not None:  # as training made it
        learned.log.data.copy_(scale.log)
    return Gaussian(location, learned)
