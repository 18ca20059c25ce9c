"""Circuits: which heads of a network a task needs, as a posterior over subsets of heads."""

from latentheads.contrib.circuits.calibration import Bin, Decisions, calibrate, decide
from latentheads.contrib.circuits.likelihoods import (
    Divergence,
    LogitDifference,
    SubsetLikelihood,
    logit_difference,
)
from latentheads.contrib.circuits.posterior import CircuitPosterior, circuit_posterior
from latentheads.contrib.circuits.prompts import Prompts
from latentheads.contrib.circuits.scorer import SubsetScorer, only_at

__all__ = [
    "Bin",
    "CircuitPosterior",
    "Decisions",
    "Divergence",
    "LogitDifference",
    "Prompts",
    "SubsetLikelihood",
    "SubsetScorer",
    "calibrate",
    "circuit_posterior",
    "decide",
    "logit_difference",
    "only_at",
]
