"""Families: conditional distributions of heads, of which priors and posteriors are made."""

from latentheads.families.family import Correlated, Family, Gaussian, Point
from latentheads.families.fusion import LEAK, Fusion
from latentheads.families.location import (
    Below,
    Corrected,
    Dependence,
    Fused,
    Location,
    Moved,
    Released,
    Scores,
)
from latentheads.families.scale import CholeskyFactor, HeadScale

__all__ = [
    "LEAK",
    "Below",
    "CholeskyFactor",
    "Corrected",
    "Correlated",
    "Dependence",
    "Family",
    "Fused",
    "Fusion",
    "Gaussian",
    "HeadScale",
    "Location",
    "Moved",
    "Point",
    "Released",
    "Scores",
]
