"""A batch of one sentence and its translation, as plots and analyses take it."""

from __future__ import annotations

from dataclasses import replace

from latentheads.batch import Batch
from latentheads.checks import check_seed
from latentheads.corpora.batches import collate
from latentheads.corpora.part import Part
from latentheads.corpora.rows import Rows
from latentheads.decoding.options import Decoding
from latentheads.decoding.translate import translate_part
from latentheads.noise import fixed_noise
from latentheads.runs.generation import encode_sources, raise_on_skip, select_task
from latentheads.runs.trained_model import TrainedModel


def encode_sentence(
    trained: TrainedModel,
    sentence: str,
    target: str | None,
    decoding: Decoding,
    *,
    direction: str | None = None,
    seed: int = 0,
) -> Batch:
    """Encodes a sentence with its translation, on the device of the model.

    Args:
        trained: The model with its guide and vocabularies.
        sentence: A source sentence, an audio file for a speech model, or the text of a language
            model.
        target: The translation; None for the model's own. A language model has none.
        decoding: Options of the beam search for the model's own translation.
        direction: The task of a model with several tasks, as en-de, de or bible:en-de.
        seed: Seed of sampling in the beam search.

    Raises:
        ValueError: The sentence is empty, or the model has no such direction, or no target.
        UnfinishedError: It is too long for the model or for memory, or an unusable audio file.
    """
    check_seed(seed)
    if trained.source is None:
        if target is not None or direction is not None:
            raise ValueError(f"{trained.name} is a language model: drop target and direction")
        part = Part(Rows.of([trained.target.encode(trained.processor.normalise(sentence))]), None)
        return collate(part, [0]).to(trained.model.device)
    part = _encode_source(trained, sentence, select_task(trained, direction))
    if target is None:
        with fixed_noise(seed, trained.model.device):
            (target,) = translate_part(trained.model, trained.guide, trained.target, part, decoding)
    part = replace(part, targets=trained.target.encode_all([trained.processor.normalise(target)]))
    return collate(part, [0]).to(trained.model.device)


def _encode_source(trained: TrainedModel, sentence: str, task: int | None) -> Part:
    """Encodes a sentence, or a file of a source that is no text, without a target of its own."""
    if not trained.processor.reads_text:
        return trained.processor.encode([sentence], task=task)
    if not sentence.strip():
        raise ValueError(f"sentence must contain a word, got {sentence!r}")
    return encode_sources(trained, [sentence], task, raise_on_skip).part
