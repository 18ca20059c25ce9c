"""Calibration on the page: how often tokens of some probability are right."""

from __future__ import annotations

from typing import Any

from latentheads.corpora import Part
from latentheads.runs.run import Run
from latentheads.uncertainty.ensembles import SingleModel
from latentheads.uncertainty.measures import bin_predictions
from latentheads.uncertainty.token_scores import score_tokens

__all__ = ["gather_calibration"]


def gather_calibration(run: Run, part: Part) -> dict[str, Any]:
    """The likeliest token of every place by its probability, ends of sentences apart.

    Heads stand at their prior's location, and alignments are summed.

    Args:
        run: The run.
        part: The sentences.

    Returns:
        ``bins`` with ``tokens``, the mean probability that was ``said`` and the share that is
        ``right``, ``error`` and ``overconfidence``; nothing of a language model.
    """
    if run.source is None:
        return {}
    figures = score_tokens(SingleModel(run.model, run.guide), part, len(run.target))
    bins = bin_predictions(figures, figures.by_temperature[1.0]).bins()
    if not bins.count.sum():
        return {}
    columns = (bins.count.tolist(), bins.confidence.tolist(), bins.accuracy.tolist())
    rows = [
        {"tokens": int(tokens), "said": said, "right": right}
        for tokens, said, right in zip(*columns, strict=True)
        if tokens
    ]
    return {"bins": rows, "error": bins.error, "excess": bins.overconfidence}
