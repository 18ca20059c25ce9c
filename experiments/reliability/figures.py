"""Figures of the results, one for each measure."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from latentheads.contrib.uncertainty.evaluation import DISSIMILARITY, TEST
from latentheads.contrib.uncertainty.measures import bin_predictions
from latentheads.contrib.uncertainty.ranking import rejection_curve
from latentheads.experiments.reliability.results import SCORE_TITLES, EvaluationResults

PLOTTED_SCORES = ("log_prob", "mean_log", "total", "knowledge", "reverse", DISSIMILARITY)
"""The uncertainty scores that are plotted."""

REJECTION_SCORES = ("log_prob", "total", "knowledge")
"""The uncertainty scores with a rejection curve."""

MEASURES_BY_PLOT = {
    "NLL": {"nll": "T = 1", "nll_scaled": "fitted T"},
    "ECE": {"ece": "T = 1", "ece_scaled": "fitted T"},
    "Brier score": {"brier": "T = 1", "brier_scaled": "fitted T"},
}


def draw_all(results: EvaluationResults, out: Path) -> None:
    """Draws all figures into a folder."""
    _draw_single_runs(results, out)
    _draw_averages(results, out)


def _draw_single_runs(results: EvaluationResults, out: Path) -> None:
    """Draws reliability diagrams and rejection curves of the first run of every system."""
    from latentheads.contrib.plot import draw_rejection, draw_reliability, save  # slow to import

    texts = results.texts
    title = f"{len(texts.test)} sentences of test, {texts.name}, the first run of every system"
    firsts = results.first_evaluations
    bins = {
        name: {
            title_of_temperature: bin_predictions(
                evaluation.references, evaluation.references.by_temperature[temperature]
            ).bins()
            for title_of_temperature, temperature in (
                ("T = 1", 1.0),
                (f"fitted T = {evaluation.temperature:.2f}", evaluation.temperature),
            )
        }
        for name, evaluation in firsts.items()
    }
    save(draw_reliability(bins, title), out / "reliability.png")
    error = {name: 1 - evaluation.chrf / 100 for name, evaluation in firsts.items()}
    curves = {
        name: {
            SCORE_TITLES[score]: rejection_curve(evaluation.scores[TEST][score], error[name])
            for score in REJECTION_SCORES
            if np.ptp(evaluation.scores[TEST][score])
        }
        for name, evaluation in firsts.items()
    }
    oracles = {name: rejection_curve(errors, errors) for name, errors in error.items()}
    save(draw_rejection(curves, oracles, title), out / "rejection.png")


def _draw_averages(results: EvaluationResults, out: Path) -> None:
    """Draws the measures that are averaged over the runs of a system."""
    from latentheads.contrib.plot import draw_metrics, save

    texts = results.texts
    sentences = f"{len(texts.test)} sentences of test, {texts.name}"
    title = f"{sentences}, mean over the runs of a system, 95 % intervals"
    figures = dict(zip(results.names, results.figures, strict=True))
    scores = {name: SCORE_TITLES[name] for name in PLOTTED_SCORES if results.has_score(name)}
    quality = {
        "prediction rejection ratio": {
            f"prr_{name}": score_title for name, score_title in scores.items()
        },
        "correlation with chrF": {
            f"chrf_{name}": score_title for name, score_title in scores.items()
        },
    }
    areas = {
        other: {f"roc_{other}_{name}": score_title for name, score_title in scores.items()}
        for other in texts.others
    }
    for file, groups, heading in (
        (
            "calibration",
            MEASURES_BY_PLOT,
            "Calibration on references, lower is better",
        ),
        ("quality", quality, "Detection of bad translations"),
        ("others", areas, "Detection of out-of-domain texts, area under the ROC curve"),
    ):
        save(draw_metrics(figures, groups, f"{heading}\n{title}"), out / f"{file}.png")
