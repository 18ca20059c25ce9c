"""Calibration data of the page: accuracy of tokens by predicted probability."""

from __future__ import annotations

from typing import Any

from latentheads.contrib.uncertainty.ensembles import DeepEnsemble
from latentheads.contrib.uncertainty.measures import bin_predictions
from latentheads.contrib.uncertainty.token_scores import score_tokens
from latentheads.corpora.part import Part
from latentheads.runs.run import Run


def gather_calibration(run: Run, part: Part) -> dict[str, Any]:
    """Bins the most likely token of every position by its probability, EOS excluded.

    Heads are set to their prior's location, and latents that can be are summed out.

    Returns:
        ``bins`` with ``tokens``, their number, ``said``, the mean probability, and ``right``, the
        accuracy; ``error`` and ``excess``. Empty for a language model.
    """
    if run.source is None:
        return {}
    one = DeepEnsemble([run.model], [run.guide])  # of what a latent has it needs decoding alone
    figures = score_tokens(one, part, len(run.target))
    bins = bin_predictions(figures, figures.by_temperature[1.0]).bins()
    if not bins.count.sum():
        return {}
    columns = (bins.count.tolist(), bins.confidence.tolist(), bins.accuracy.tolist())
    rows = [
        {"tokens": int(tokens), "said": confidence, "right": accuracy}
        for tokens, confidence, accuracy in zip(*columns, strict=True)
        if tokens
    ]
    return {"bins": rows, "error": bins.error, "excess": bins.overconfidence}
