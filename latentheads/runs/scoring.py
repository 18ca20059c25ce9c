"""Scores of a run's output: BLEU and chrF, or WER and CER where it recognises speech."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from latentheads.batch import Batch
from latentheads.corpora import Corpus
from latentheads.decoding.translate import work_through
from latentheads.guide import ModelGuide, WithSelection
from latentheads.handlers import PlugIn
from latentheads.inference.evaluation import eval_no_grad
from latentheads.metrics.recognition import recognise
from latentheads.metrics.translation import score
from latentheads.model import HeadModel
from latentheads.models import Translation
from latentheads.runs.settings import Settings

__all__ = ["score_ctc", "score_written"]


def score_ctc(
    settings: Settings, model: HeadModel, guide: ModelGuide, corpus: Corpus
) -> dict[str, Any]:
    """WER and CER of what CTC hears in the test part, where it is trained and speech recognised.

    CTC is a head of training alone: its scores are of the encoder, and not of the run's output.

    Args:
        settings: Those of the run.
        model: Its model, whose heads stand at their prior's location.
        guide: Selects the heads, where they are selected.
        corpus: Its corpus.
    """
    if not (isinstance(model, Translation) and model.ctc and settings.data.is_recognition):
        return {}

    def hear(batch: Batch) -> list[str]:
        with eval_no_grad(model), WithSelection(guide), PlugIn():
            found = model.decode_ctc(batch.to(model.device))
        return [corpus.target.decode(tokens) for tokens in found]

    written = work_through(corpus.test, hear, "")
    found = recognise(written, corpus.test.references, settings.data.lowercase)
    return {"ctc_wer": found.wer, "ctc_cer": found.cer}


def score_written(
    settings: Settings, written: Sequence[str], references: Sequence[str]
) -> dict[str, Any]:
    """The scores of what a run writes, by their names.

    Args:
        settings: Those of the run.
        written: A line each.
        references: What counts as right.
    """
    data, decoding = settings.data, settings.decoding
    if data.is_recognition:
        return asdict(recognise(written, references, data.lowercase, decoding.paper_wer))
    how = (data.words, settings.protocol, data.lowercase, decoding.accuracy)
    return asdict(score(written, references, *how))
