"""Scores of a run's output: BLEU and chrF, or WER and CER where it recognises speech."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from latentheads.batch import Batch
from latentheads.corpora import Corpus
from latentheads.decoding.translate import work_through
from latentheads.guide import ModelGuide, WithSelection
from latentheads.handlers import PlugIn
from latentheads.inference.evaluation import eval_no_grad
from latentheads.metrics.resampling import References
from latentheads.metrics.rouge import rouge
from latentheads.metrics.scores import Score, Scores, score_lines
from latentheads.model import HeadModel
from latentheads.models import Translation
from latentheads.runs.settings import Settings

__all__ = ["score_ctc", "score_summaries", "score_written"]


def score_ctc(settings: Settings, model: HeadModel, guide: ModelGuide, corpus: Corpus) -> Scores:
    """WER and CER of what CTC hears in the test part, where it is trained and speech recognised.

    CTC is a head of training alone: its scores are of the encoder, and not of the run's output.

    Args:
        settings: Those of the run.
        model: Its model, whose heads stand at their prior's location.
        guide: Selects the heads, where they are selected.
        corpus: Its corpus.
    """
    if not (isinstance(model, Translation) and model.ctc and settings.data.is_recognition):
        return Scores()

    def hear(batch: Batch) -> list[str]:
        with eval_no_grad(model), WithSelection(guide), PlugIn():
            found = model.decode_ctc(batch.to(model.device))
        return [corpus.target.decode(tokens) for tokens in found]

    written = work_through(corpus.test, hear, "")
    scores = score_lines(written, _references(settings, corpus.test.references))
    return Scores.of({"ctc_wer": scores.wer, "ctc_cer": scores.cer})


def score_written(settings: Settings, written: Sequence[str], references: Sequence[str]) -> Scores:
    """The scores of what a run writes.

    Args:
        settings: Those of the run.
        written: A line each.
        references: What counts as right.
    """
    return score_lines(written, _references(settings, references))


def _references(settings: Settings, lines: Sequence[str]) -> References:
    """How the lines of a run are compared with what is right."""
    data, decoding = settings.data, settings.decoding
    return References(
        lines,
        tokenised=data.words,
        lowercase=data.lowercase,
        is_speech=data.is_recognition,
        protocol=settings.protocol,
        accuracy=decoding.accuracy,
        paper_wer=decoding.paper_wer,
    )


def score_summaries(
    written: Sequence[str], leads: Sequence[str], references: Sequence[Sequence[str]]
) -> Scores:
    """ROUGE of summaries, and of the first sentence of every source, which is the baseline.

    Args:
        written: The summaries.
        leads: The first sentences.
        references: The texts that each is compared with.
    """
    rows = []
    for prefix, lines in (("", written), ("lead_", leads)):
        scores = asdict(rouge(lines, references))
        signature = scores.pop("signature")
        rows += [Score.of(prefix + name, x, signature=signature) for name, x in scores.items()]
    return Scores(rows)
