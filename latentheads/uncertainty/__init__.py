"""Uncertainty: how far a model's probabilities can be relied on."""

from latentheads.uncertainty.calibration import (
    Bins,
    BinSums,
    edges_of_mass,
    edges_of_width,
    sum_bins,
)
from latentheads.uncertainty.committees import (
    Alone,
    Committee,
    DroppedOut,
    Ensemble,
    HeadDraws,
    Noised,
)
from latentheads.uncertainty.edits import label_tokens
from latentheads.uncertainty.figures import (
    TokenFigures,
    fit_temperature,
    read_tokens,
    score_sentences,
)
from latentheads.uncertainty.measures import Figure, bins_of_law, compare_systems, measure_trial
from latentheads.uncertainty.prediction import Prediction, mix_laws
from latentheads.uncertainty.ranking import (
    correlation,
    rejection_curve,
    rejection_ratio,
    roc_area,
)
from latentheads.uncertainty.scaling import Line, TemperatureFit, fit_line
from latentheads.uncertainty.trial import Output, Texts, Trial, try_committee

__all__ = [
    "Alone",
    "BinSums",
    "Bins",
    "Committee",
    "DroppedOut",
    "Ensemble",
    "Figure",
    "HeadDraws",
    "Line",
    "Noised",
    "Output",
    "Prediction",
    "TemperatureFit",
    "Texts",
    "TokenFigures",
    "Trial",
    "bins_of_law",
    "compare_systems",
    "correlation",
    "edges_of_mass",
    "edges_of_width",
    "fit_line",
    "fit_temperature",
    "label_tokens",
    "measure_trial",
    "mix_laws",
    "read_tokens",
    "rejection_curve",
    "rejection_ratio",
    "roc_area",
    "score_sentences",
    "sum_bins",
    "try_committee",
]
