"""Pictures of the findings about systems, one a measure."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from latentheads.experiments.reliability.results import SHOWN, EvaluationResults
from latentheads.uncertainty.evaluation import TEST, UNLIKE
from latentheads.uncertainty.measures import bins_of_law
from latentheads.uncertainty.ranking import rejection_curve

__all__ = ["draw_all"]

DRAWN = ("log_prob", "mean_log", "total", "knowledge", "reverse", UNLIKE)
"""The scores that stand in figures."""

CURVES = ("log_prob", "total", "knowledge")
"""The scores that sentences are rejected by in a figure."""

LAWS = {
    "NLL": {"nll": "as it is", "nll_scaled": "at its temperature"},
    "ECE": {"ece": "as it is", "ece_scaled": "at its temperature"},
    "Brier score": {"brier": "as it is", "brier_scaled": "at its temperature"},
}


def draw_all(findings: EvaluationResults, out: Path) -> None:
    """Draws a figure a measure into a folder."""
    _draw_trials(findings, out)
    _draw_figures(findings, out)


def _draw_trials(findings: EvaluationResults, out: Path) -> None:
    """Draws figures of single runs: reliability diagrams, and rejection curves."""
    from latentheads.plot import draw_rejection, draw_reliability, save  # takes long to load

    texts = findings.texts
    title = f"{len(texts.test)} sentences of test, {texts.name}, the first run of every system"
    firsts = findings.first_trials
    bins = {
        name: {
            said: bins_of_law(trial.references, trial.references.judged[at]).bins()
            for said, at in (
                ("as it is", 1.0),
                (f"at T = {trial.temperature:.2f}", trial.temperature),
            )
        }
        for name, trial in firsts.items()
    }
    save(draw_reliability(bins, title), out / "reliability.png")
    error = {name: 1 - trial.chrf / 100 for name, trial in firsts.items()}
    curves = {
        name: {
            SHOWN[score]: rejection_curve(trial.scores[TEST][score], error[name])
            for score in CURVES
            if np.ptp(trial.scores[TEST][score])
        }
        for name, trial in firsts.items()
    }
    oracles = {name: rejection_curve(each, each) for name, each in error.items()}
    save(draw_rejection(curves, oracles, title), out / "rejection.png")


def _draw_figures(findings: EvaluationResults, out: Path) -> None:
    """Draws figures that are means over the runs of a system."""
    from latentheads.plot import draw_metrics, save

    texts = findings.texts
    read = f"{len(texts.test)} sentences of test, {texts.name}"
    title = f"{read}, mean over the runs of a system, 95 % intervals"
    figures = dict(zip(findings.names, findings.figures, strict=True))
    scores = {name: SHOWN[name] for name in DRAWN if findings.knows_score(name)}
    quality = {
        "prediction rejection ratio": {f"prr_{name}": said for name, said in scores.items()},
        "correlation with chrF": {f"chrf_{name}": said for name, said in scores.items()},
    }
    areas = {
        other: {f"roc_{other}_{name}": said for name, said in scores.items()}
        for other in texts.others
    }
    for file, groups, what in (
        (
            "calibration",
            LAWS,
            "How good are the probabilities of what stands in the references? Less is better",
        ),
        ("quality", quality, "Does doubt find bad translations?"),
        ("others", areas, "Does doubt find texts of other kinds? Area under the ROC curve"),
    ):
        save(draw_metrics(figures, groups, f"{what}\n{title}"), out / f"{file}.png")
