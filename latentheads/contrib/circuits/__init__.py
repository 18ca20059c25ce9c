"""Circuits: which heads of a network a task needs, as a posterior over subsets of heads."""

from latentheads.contrib.circuits.calibration import (
    Calibration,
    Decisions,
    calibrate,
    decide,
    split_prompts,
)
from latentheads.contrib.circuits.guides import (
    CircuitGuide,
    CircuitModel,
    ExactBound,
    LogisticChain,
    exact_bound,
    fit_guide,
)
from latentheads.contrib.circuits.importances import Importances, from_inclusion
from latentheads.contrib.circuits.interactions import interactions
from latentheads.contrib.circuits.kept import join_posteriors, load_posterior, save_posterior
from latentheads.contrib.circuits.likelihoods import (
    Divergence,
    LogitDifference,
    SubsetLikelihood,
    logit_difference,
)
from latentheads.contrib.circuits.posterior import CircuitPosterior, circuit_posterior
from latentheads.contrib.circuits.prompts import Prompts
from latentheads.contrib.circuits.samplers import (
    SampledSubsets,
    SubsetDensity,
    block_tables,
    gibbs,
    smc,
)
from latentheads.contrib.circuits.scorer import SubsetScorer, only_at

__all__ = [
    "Calibration",
    "CircuitGuide",
    "CircuitModel",
    "CircuitPosterior",
    "Decisions",
    "Divergence",
    "ExactBound",
    "Importances",
    "LogisticChain",
    "LogitDifference",
    "Prompts",
    "SampledSubsets",
    "SubsetDensity",
    "SubsetLikelihood",
    "SubsetScorer",
    "block_tables",
    "calibrate",
    "circuit_posterior",
    "decide",
    "exact_bound",
    "fit_guide",
    "from_inclusion",
    "gibbs",
    "interactions",
    "join_posteriors",
    "load_posterior",
    "logit_difference",
    "only_at",
    "save_posterior",
    "smc",
    "split_prompts",
]
