"""The results of all systems, from which tables, figures and files are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from latentheads.contrib.uncertainty.evaluation import DISSIMILARITY, EnsembleEvaluation, Texts
from latentheads.contrib.uncertainty.measures import Figure
from latentheads.experiments.reliability.systems import System

SCORE_TITLES = {
    "log_prob": "log p",
    "mean_log": "mean log p",
    "total": "entropy",
    "data": "data",
    "knowledge": "knowledge",
    "pairs": "pairs",
    "reverse": "reverse",
    DISSIMILARITY: "unlike",
}
"""Short titles of the uncertainty scores."""


@dataclass(frozen=True)
class EvaluationResults:
    """The results of systems on some texts.

    Attributes:
        systems: The systems; the first one is the baseline.
        evaluations: The evaluations of the ensembles of every system.
        figures: The measures of every system by name.
        texts: The texts.
    """

    systems: Sequence[System]
    evaluations: Sequence[Sequence[EnsembleEvaluation]]
    figures: Sequence[Mapping[str, Figure]]
    texts: Texts

    @property
    def names(self) -> list[str]:
        """The names of the systems."""
        return [system.name for system in self.systems]

    @property
    def first_evaluations(self) -> dict[str, EnsembleEvaluation]:
        """The evaluation of the first run of every system, by its name."""
        firsts = (of_system[0] for of_system in self.evaluations)
        return dict(zip(self.names, firsts, strict=True))

    def has_score(self, score: str) -> bool:
        """Whether any system has a score."""
        return any(f"prr_{score}" in figures for figures in self.figures)
