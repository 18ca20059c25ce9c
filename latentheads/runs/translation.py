"""Translation by a model and the processor of its text, without a run folder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, overload

from latentheads.corpora.corpus import Corpus
from latentheads.corpora.processor import Processor
from latentheads.decoding.options import Decoding
from latentheads.errors import shown
from latentheads.guide import ModelGuide, check_pair
from latentheads.guides.tied import Tied
from latentheads.model import Decoder
from latentheads.runs.generation import override_decoding, translate_texts
from latentheads.runs.trained_model import TrainedModel


@overload
def translate(
    model: Decoder,
    processor: Processor | Corpus,
    sentences: Iterable[str],
    number: Literal[0] = 0,
    **options: Any,
) -> list[str]: ...


@overload
def translate(
    model: Decoder,
    processor: Processor | Corpus,
    sentences: Iterable[str],
    number: int,
    **options: Any,
) -> list[list[str]]: ...


def translate(
    model: Decoder,
    processor: Processor | Corpus,
    sentences: Iterable[str],
    number: int = 0,
    *,
    guide: ModelGuide | None = None,
    direction: str | None = None,
    seed: int = 0,
    **decoding: Any,
) -> list[str] | list[list[str]]:
    """Translates sentences by a model, without a run folder; a run has ``run.translate``.

    Args:
        model: A translation model.
        processor: What encodes its text, as ``corpus.processor``, or the corpus itself.
        sentences: Texts.
        number: 0: one translation of each. More: this number of translations of each, every one
            with newly sampled heads.
        guide: The model's guide, if the model selects its heads: the guide's selection is used.
        direction: The task of a model with several tasks, as en-de, de or bible:en-de.
        seed: Seed of sampling.
        **decoding: Options of :class:`latentheads.inference.Decoding`, such as ``beam=5``.

    Returns:
        A translation of each sentence, or a list of them with a number.

    Raises:
        ValueError: The model has another vocabulary or no source, or an option is unknown or out of
            range.
        UnfinishedError: A sentence is too long for the model or for memory.

    Example:
        >>> texts = corpus.source_texts(corpus.test)[:2]
        >>> translations = lh.translate(model, corpus.processor, texts, beam=2, max_tokens=5)
        >>> len(translations)
        2
    """
    if isinstance(processor, Corpus):
        processor = processor.processor
    if not isinstance(processor, Processor):
        raise ValueError(
            f"processor must be a Corpus, or the processor of one, got {shown(processor)}"
        )
    if not processor.reads_text:
        raise ValueError("processor has a source of speech: use lh.contrib.speech.transcribe")
    source, target = processor.source, processor.target
    if not isinstance(model, Decoder):
        raise ValueError(f"model must be one that decodes, as Translation, got {shown(model)}")
    sizes = {"target": len(target)} | ({} if source is None else {"source": len(source)})
    for side, size in sizes.items():
        if (of_model := model.vocabulary_sizes.get(side, size)) != size:
            raise ValueError(
                f"the {side} vocabulary of the processor has {size:,} tokens, that of the model "
                f"{of_model:,}"
            )
    if guide is not None:
        check_pair(model, guide)
    elif model.selecting_blocks:
        raise ValueError("guide is missing: this model selects its heads by its guide")
    trained = TrainedModel(model, guide or Tied(model), processor)
    options = override_decoding(trained, Decoding(), decoding, number)
    return translate_texts(trained, sentences, options, number, direction=direction, seed=seed)
