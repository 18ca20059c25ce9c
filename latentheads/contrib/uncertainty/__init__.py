"""Uncertainty: calibration, ensembles, and detection of errors and of out-of-domain text."""

from latentheads.contrib.uncertainty.calibration import (
    Bins,
    BinSums,
    equal_mass_edges,
    equal_width_edges,
    sum_bins,
)
from latentheads.contrib.uncertainty.confidence import (
    ConfidenceEstimator,
    ConfidenceScores,
    bracket_doubtful_words,
)
from latentheads.contrib.uncertainty.edits import label_tokens
from latentheads.contrib.uncertainty.ensembles import (
    DeepEnsemble,
    Ensemble,
    HeadSamples,
    MCDropout,
    NoisyEnsemble,
    SingleModel,
)
from latentheads.contrib.uncertainty.evaluation import (
    EnsembleEvaluation,
    Output,
    Texts,
    evaluate_ensemble,
)
from latentheads.contrib.uncertainty.measures import (
    Figure,
    bin_predictions,
    compare_systems,
    compute_measures,
)
from latentheads.contrib.uncertainty.prediction import Prediction, mix_distributions
from latentheads.contrib.uncertainty.ranking import (
    correlation,
    rejection_curve,
    rejection_ratio,
    roc_auc,
)
from latentheads.contrib.uncertainty.scaling import PlattScaling, TemperatureFit, fit_platt_scaling
from latentheads.contrib.uncertainty.token_scores import (
    TokenScores,
    fit_temperature,
    score_sentences,
    score_tokens,
)

__all__ = [
    "BinSums",
    "Bins",
    "ConfidenceEstimator",
    "ConfidenceScores",
    "DeepEnsemble",
    "Ensemble",
    "EnsembleEvaluation",
    "Figure",
    "HeadSamples",
    "MCDropout",
    "NoisyEnsemble",
    "Output",
    "PlattScaling",
    "Prediction",
    "SingleModel",
    "TemperatureFit",
    "Texts",
    "TokenScores",
    "bin_predictions",
    "bracket_doubtful_words",
    "compare_systems",
    "compute_measures",
    "correlation",
    "equal_mass_edges",
    "equal_width_edges",
    "evaluate_ensemble",
    "fit_platt_scaling",
    "fit_temperature",
    "label_tokens",
    "mix_distributions",
    "rejection_curve",
    "rejection_ratio",
    "roc_auc",
    "score_sentences",
    "score_tokens",
    "sum_bins",
]
