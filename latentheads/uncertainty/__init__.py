"""Uncertainty: how far a model's probabilities can be relied on."""

from latentheads.uncertainty.calibration import (
    Bins,
    BinSums,
    edges_of_mass,
    edges_of_width,
    sum_bins,
)
from latentheads.uncertainty.edits import label_tokens
from latentheads.uncertainty.ensembles import (
    DeepEnsemble,
    Ensemble,
    HeadSamples,
    MCDropout,
    NoisyEnsemble,
    SingleModel,
)
from latentheads.uncertainty.evaluation import EnsembleEvaluation, Output, Texts, evaluate_ensemble
from latentheads.uncertainty.figures import (
    TokenFigures,
    fit_temperature,
    read_tokens,
    score_sentences,
)
from latentheads.uncertainty.measures import Figure, bins_of_law, compare_systems, compute_measures
from latentheads.uncertainty.prediction import Prediction, mix_distributions
from latentheads.uncertainty.ranking import (
    correlation,
    rejection_curve,
    rejection_ratio,
    roc_area,
)
from latentheads.uncertainty.scaling import Line, TemperatureFit, fit_line

__all__ = [
    "BinSums",
    "Bins",
    "DeepEnsemble",
    "Ensemble",
    "EnsembleEvaluation",
    "Figure",
    "HeadSamples",
    "Line",
    "MCDropout",
    "NoisyEnsemble",
    "Output",
    "Prediction",
    "SingleModel",
    "TemperatureFit",
    "Texts",
    "TokenFigures",
    "bins_of_law",
    "compare_systems",
    "compute_measures",
    "correlation",
    "edges_of_mass",
    "edges_of_width",
    "evaluate_ensemble",
    "fit_line",
    "fit_temperature",
    "label_tokens",
    "mix_distributions",
    "read_tokens",
    "rejection_curve",
    "rejection_ratio",
    "roc_area",
    "score_sentences",
    "sum_bins",
]
