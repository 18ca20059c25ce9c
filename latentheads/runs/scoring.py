"""Scores of a run's output: BLEU and chrF, or WER and CER for speech recognition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from latentheads.batch import Batch
from latentheads.corpora.corpus import Corpus
from latentheads.decoding.translate import map_batches
from latentheads.guide import ModelGuide
from latentheads.handlers import PlugIn
from latentheads.inference.evaluation import eval_no_grad
from latentheads.latents.handlers import WithSelection
from latentheads.metrics.resampling import References
from latentheads.metrics.rouge import rouge
from latentheads.metrics.scores import Score, Scores, score_lines
from latentheads.model import HeadModel
from latentheads.models.translation import Translation
from latentheads.runs.settings import Settings


def score_ctc(settings: Settings, model: HeadModel, guide: ModelGuide, corpus: Corpus) -> Scores:
    """WER and CER of the CTC head on the test part, for speech recognition with CTC.

    CTC is an auxiliary loss of training: its scores are of the encoder, not of the run's output.

    Heads are set to their prior's location, and the guide's likeliest selection is used.

    Args:
        settings: The settings of the run.
        model: Its model; heads are set to their prior's location.
        guide: Its guide; its likeliest selection of heads is used.
        corpus: Its corpus.
    """
    if not (isinstance(model, Translation) and model.ctc and settings.data.is_recognition):
        return Scores()

    def transcribe(batch: Batch) -> list[str]:
        with eval_no_grad(model), WithSelection(guide), PlugIn():
            token_ids = model.decode_ctc(batch.to(model.device))
        return [corpus.target.decode(tokens) for tokens in token_ids]

    transcripts = map_batches(corpus.test, transcribe, "")
    scores = score_lines(transcripts, _references(settings, corpus.test.references))
    return Scores.of({"ctc_wer": scores.wer, "ctc_cer": scores.cer})


def score_outputs(settings: Settings, outputs: Sequence[str], references: Sequence[str]) -> Scores:
    """Scores the output of a run."""
    return score_lines(outputs, _references(settings, references))


def _references(settings: Settings, lines: Sequence[str]) -> References:
    """The references of a run, with how its outputs are compared with them."""
    data, decode = settings.data, settings.decode
    return References(
        lines,
        tokenised=data.is_tokenised,
        lowercase=data.lowercase,
        is_speech=data.is_recognition,
        protocol=settings.protocol,
        accuracy=decode.accuracy,
        paper_wer=decode.paper_wer,
    )


def score_summaries(
    outputs: Sequence[str], leads: Sequence[str], references: Sequence[Sequence[str]]
) -> Scores:
    """Computes the ROUGE of summaries, and of the first sentence of every source: the baseline."""
    rows = []
    for prefix, lines in (("", outputs), ("lead_", leads)):
        scores = asdict(rouge(lines, references))
        signature = scores.pop("signature")
        rows += [Score.of(prefix + name, x, signature=signature) for name, x in scores.items()]
    return Scores(rows)
