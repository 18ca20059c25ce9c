"""Scores of a run's output: BLEU and chrF, or WER and CER for speech recognition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from latentheads.batch import Batch
from latentheads.corpora import Corpus
from latentheads.decoding.translate import map_batches
from latentheads.guide import ModelGuide, WithSelection
from latentheads.handlers import PlugIn
from latentheads.inference.evaluation import eval_no_grad
from latentheads.metrics.recognition import recognise
from latentheads.metrics.translation import score
from latentheads.model import HeadModel
from latentheads.models import Translation
from latentheads.runs.settings import Settings

__all__ = ["score_ctc", "score_outputs"]


def score_ctc(
    settings: Settings, model: HeadModel, guide: ModelGuide, corpus: Corpus
) -> dict[str, Any]:
    """WER and CER of the CTC head on the test part, for speech recognition with CTC.

    CTC is an auxiliary loss of training: its scores are of the encoder, not of the run's output.

    Args:
        settings: The settings of the run.
        model: Its model; heads are set to their prior's location.
        guide: Its guide; its likeliest selection of heads is used.
        corpus: Its corpus.
    """
    if not (isinstance(model, Translation) and model.ctc and settings.data.is_recognition):
        return {}

    def transcribe(batch: Batch) -> list[str]:
        with eval_no_grad(model), WithSelection(guide), PlugIn():
            token_ids = model.decode_ctc(batch.to(model.device))
        return [corpus.target.decode(tokens) for tokens in token_ids]

    transcripts = map_batches(corpus.test, transcribe, "")
    rates = recognise(transcripts, corpus.test.references, settings.data.lowercase)
    return {"ctc_wer": rates.wer, "ctc_cer": rates.cer}


def score_outputs(
    settings: Settings, outputs: Sequence[str], references: Sequence[str]
) -> dict[str, Any]:
    """Scores the output of a run; returns the scores by name.

    Args:
        settings: The settings of the run.
        outputs: The output lines.
        references: The references.
    """
    data, decoding = settings.data, settings.decode
    if data.is_recognition:
        return asdict(recognise(outputs, references, data.lowercase, decoding.paper_wer))
    options = (data.is_tokenised, settings.protocol, data.lowercase, decoding.accuracy)
    return asdict(score(outputs, references, *options))
