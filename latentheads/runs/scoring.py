"""How good what a run writes is: by BLEU and chrF, or by WER and CER where it recognises speech."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from latentheads.metrics.recognition import recognise
from latentheads.metrics.translation import score
from latentheads.runs.settings import Settings

__all__ = ["score_written"]


def score_written(
    settings: Settings, written: Sequence[str], references: Sequence[str]
) -> dict[str, Any]:
    """The scores of what a run writes, by their names.

    Args:
        settings: Those of the run.
        written: A line each.
        references: What counts as right.
    """
    data = settings.data
    if data.recognises:
        paper = settings.decoding.paper_wer
        return asdict(recognise(written, references, data.lowercase, paper))
    return asdict(score(written, references, data.words, settings.protocol, data.lowercase))
