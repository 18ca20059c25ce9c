"""Scores of a part of a corpus, as a run reports them."""

from __future__ import annotations

from typing import Any

from latentheads.metrics.scores import Scores

FIGURES: dict[str, float | None] = {
    **{"elbo": -1.5, "log_likelihood": -1.25, "kl": 0.25, "iwae": -1.4375, "iwae_k": 32},
    **{"plug_in": -1.3125, "tokens": 1234, "effective_sample_size": 17.5, "pareto_k": 0.125},
    **{"truth": -1.0, "truth_elbo": -1.25, "truth_gap": 0.25, "truth_sentences": 11},
    "sentences": 11,
}


def rows_of(values: dict[str, float | None]) -> list[dict[str, Any]]:
    """The rows of ``results.json``."""
    return Scores.of(values).to_json()
