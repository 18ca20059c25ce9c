"""Families: conditional distributions of heads, of which priors and posteriors are made."""

from latentheads.families.family import Correlated, Family, Gaussian, Point, check_family, check_law
from latentheads.families.fusion import LEAK, Fusion
from latentheads.families.location import (
    Affine,
    Cascade,
    Dependence,
    Location,
    OwnMLP,
    Plain,
    ReleasedCascade,
    RunningSum,
)
from latentheads.families.scale import CholeskyFactor, HeadScale
from latentheads.families.told import Told, WordScores

__all__ = [
    "LEAK",
    "Affine",
    "Cascade",
    "CholeskyFactor",
    "Correlated",
    "Dependence",
    "Family",
    "Fusion",
    "Gaussian",
    "HeadScale",
    "Location",
    "OwnMLP",
    "Plain",
    "Point",
    "ReleasedCascade",
    "RunningSum",
    "Told",
    "WordScores",
    "check_family",
    "check_law",
]
