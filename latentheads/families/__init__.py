"""Families: conditional distributions of heads; priors and posteriors are built from them."""

from latentheads.families.family import (
    Dependence,
    Family,
    check_family,
    check_head_distribution,
    check_positive_scale,
)
from latentheads.families.fusion import LEAK, Fusion
from latentheads.families.location import (
    Affine,
    Cascade,
    Identity,
    Location,
    OwnMLP,
    ReleasedCascade,
    RunningSum,
)
from latentheads.families.normal import Correlated, Gaussian, Point
from latentheads.families.scale import CholeskyFactor, HeadScale
from latentheads.families.target_conditioned import TargetConditioned, WordScores

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
    "Identity",
    "Location",
    "OwnMLP",
    "Point",
    "ReleasedCascade",
    "RunningSum",
    "TargetConditioned",
    "WordScores",
    "check_family",
    "check_head_distribution",
    "check_positive_scale",
]
