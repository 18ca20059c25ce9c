"""A batch of one sentence, or of one file of sound, with its translation."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from latentheads.batch import Batch
from latentheads.corpora import Part, Rows
from latentheads.corpora.batches import collate
from latentheads.corpora.speech.vocabulary import Positions
from latentheads.decoding.translate import translate_part
from latentheads.runs.hearing import hear_files
from latentheads.runs.writing import encode_sources, find_task, lose_nothing

if TYPE_CHECKING:
    from latentheads.runs.run import Run

__all__ = ["read_sentence"]


def read_sentence(
    run: Run, sentence: str, target: str | None = None, direction: str | None = None
) -> Batch:
    """A batch of a sentence alone; see :meth:`latentheads.runs.run.Run.read_sentence`."""
    if run.source is None:
        if target is not None or direction is not None:
            raise ValueError(f"{run.path} is a language model: drop target and direction")
        return collate(Part(Rows.of([run.target.encode(sentence)]), None), [0])
    part = _encode(run, sentence, find_task(run, direction))
    if target is None:
        (target,) = translate_part(run.model, run.guide, run.target, part, run.settings.decoding)
    return collate(replace(part, targets=run.target.encode_all([target])), [0])


def _encode(run: Run, sentence: str, task: int | None) -> Part:
    """A sentence, or a file of sound for a run that hears, without a target of its own."""
    if isinstance(run.source, Positions):
        return hear_files(run, [sentence], task=task).part
    if not sentence.strip():
        raise ValueError(f"sentence must hold a word, got {sentence!r}")
    return encode_sources(run, [sentence], task, lose_nothing).part
