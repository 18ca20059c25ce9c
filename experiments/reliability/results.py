"""The findings about systems, of which tables, figures and files are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from latentheads.experiments.reliability.systems import System
from latentheads.uncertainty.evaluation import DISSIMILARITY, EnsembleEvaluation, Texts
from latentheads.uncertainty.measures import Figure

__all__ = ["SHOWN", "EvaluationResults"]

SHOWN = {
    "log_prob": "log p",
    "mean_log": "members",
    "total": "entropy",
    "data": "data",
    "knowledge": "knowledge",
    "pairs": "pairs",
    "reverse": "reverse",
    DISSIMILARITY: "unlike",
}
"""Short names of the scores."""


@dataclass(frozen=True)
class EvaluationResults:
    """The findings about systems on some texts.

    Attributes:
        systems: The systems, the first of them the baseline.
        trials: Of every system, those of its committees.
        figures: Of every system, its figures by name.
        texts: The texts.
    """

    systems: Sequence[System]
    evaluations: Sequence[Sequence[EnsembleEvaluation]]
    figures: Sequence[Mapping[str, Figure]]
    texts: Texts

    @property
    def names(self) -> list[str]:
        """What the systems are called."""
        return [system.name for system in self.systems]

    @property
    def first_evaluations(self) -> dict[str, EnsembleEvaluation]:
        """The trial of the first run of every system, by its name."""
        firsts = (each[0] for each in self.evaluations)
        return dict(zip(self.names, firsts, strict=True))

    def knows_score(self, score: str) -> bool:
        """Whether any system has a score."""
        return any(f"prr_{score}" in figures for figures in self.figures)
