"""Texts by a model and the processor of its text, without a run folder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Unpack, overload

from latentheads.checks import check_instance
from latentheads.corpora.corpus import Corpus
from latentheads.corpora.processor import Processor
from latentheads.decoding.options import Decoding, DecodingKwargs
from latentheads.guide import ModelGuide, check_pair
from latentheads.guides.tied import Tied
from latentheads.model import Decoder
from latentheads.options import from_dict
from latentheads.runs.generation import (
    GenerationKwargs,
    Sampling,
    SamplingKwargs,
    Texts,
    TranslationKwargs,
    generate_texts,
    override_decoding,
    translate_texts,
)
from latentheads.runs.trained_model import TrainedModel


class TranslationWithGuide(TranslationKwargs, total=False):
    """The other arguments of :func:`translate`."""

    guide: ModelGuide | None


class GenerationWithGuide(GenerationKwargs, total=False):
    """The other arguments of :func:`generate`."""

    guide: ModelGuide | None


@overload
def translate(  # type: ignore[overload-overlap]
    model: Decoder,
    processor: Processor | Corpus,
    sentences: str,
    *,
    num_return_sequences: None = None,
    **options: Unpack[TranslationWithGuide],
) -> str: ...


@overload
def translate(  # type: ignore[overload-overlap]
    model: Decoder,
    processor: Processor | Corpus,
    sentences: str,
    *,
    num_return_sequences: int,
    **options: Unpack[TranslationWithGuide],
) -> list[str]: ...


@overload
def translate(
    model: Decoder,
    processor: Processor | Corpus,
    sentences: Iterable[str],
    *,
    num_return_sequences: None = None,
    **options: Unpack[TranslationWithGuide],
) -> list[str]: ...


@overload
def translate(
    model: Decoder,
    processor: Processor | Corpus,
    sentences: Iterable[str],
    *,
    num_return_sequences: int,
    **options: Unpack[TranslationWithGuide],
) -> list[list[str]]: ...


def translate(
    model: Decoder,
    processor: Processor | Corpus,
    sentences: str | Iterable[str],
    *,
    guide: ModelGuide | None = None,
    num_return_sequences: int | None = None,
    direction: str | None = None,
    seed: int = 0,
    **decoding: Unpack[DecodingKwargs],
) -> Texts:
    """Translates by a model, without a run folder; a run has ``run.translate``.

    Args:
        model: A translation model.
        processor: What encodes its text, as ``corpus.processor``, or the corpus itself.
        sentences: A text, or several.
        guide: The model's guide, if the model selects its heads: the guide's selection is used.
        num_return_sequences: Number of translations of each text, every one with newly sampled
            heads; None: one, not in a list.
        direction: The task of a model with several tasks, as en-de, de or bible:en-de.
        seed: Seed of sampling.
        **decoding: Options of :class:`latentheads.inference.Decoding`, such as ``num_beams=5``.

    Returns:
        The translation of a text, or a list with that of each; with a number of sequences there is
        a list in place of each translation.

    Raises:
        ValueError: The model has another vocabulary or no source, or an option is unknown or out of
            range.
        UnfinishedError: A sentence is too long for the model or for memory.

    Example:
        >>> texts = corpus.source_texts(corpus.test)[:2]
        >>> translations = lh.translate(model, corpus, texts, num_beams=2, max_new_tokens=5)
        >>> len(translations)
        2
    """
    trained = _join(model, processor, guide)
    if not trained.processor.reads_text:
        raise ValueError("processor has a source of speech: use lh.contrib.speech.transcribe")
    options = override_decoding(trained, Decoding(), decoding, num_return_sequences)
    return translate_texts(
        trained, sentences, options, num_return_sequences, direction=direction, seed=seed
    )


@overload
def generate(  # type: ignore[overload-overlap]
    model: Decoder,
    processor: Processor | Corpus,
    prompts: str = "",
    *,
    num_return_sequences: None = None,
    **options: Unpack[GenerationWithGuide],
) -> str: ...


@overload
def generate(  # type: ignore[overload-overlap]
    model: Decoder,
    processor: Processor | Corpus,
    prompts: str = "",
    *,
    num_return_sequences: int,
    **options: Unpack[GenerationWithGuide],
) -> list[str]: ...


@overload
def generate(
    model: Decoder,
    processor: Processor | Corpus,
    prompts: Iterable[str],
    *,
    num_return_sequences: None = None,
    **options: Unpack[GenerationWithGuide],
) -> list[str]: ...


@overload
def generate(
    model: Decoder,
    processor: Processor | Corpus,
    prompts: Iterable[str],
    *,
    num_return_sequences: int,
    **options: Unpack[GenerationWithGuide],
) -> list[list[str]]: ...


def generate(
    model: Decoder,
    processor: Processor | Corpus,
    prompts: str | Iterable[str] = "",
    *,
    guide: ModelGuide | None = None,
    num_return_sequences: int | None = None,
    seed: int = 0,
    **sampling: Unpack[SamplingKwargs],
) -> Texts:
    """Continues prompts by a language model, without a run folder; a run has ``run.generate``.

    Args:
        model: A language model.
        processor: What encodes its text, as ``corpus.processor``, or the corpus itself.
        prompts: The beginning of a text, or several.
        guide: The model's guide, if the model selects its heads: the guide's selection is used.
        num_return_sequences: Number of continuations of each prompt; None: one, not in a list.
        seed: Seed of sampling.
        **sampling: Options of :class:`latentheads.inference.Sampling`, such as ``max_new_tokens``
            and ``temperature``.

    Returns:
        The prompt with its continuation, or a list with each; with a number of sequences there is
        a list in place of each text.

    Raises:
        ValueError: The model has another vocabulary or a source, or an option is unknown or out of
            range.

    Example:
        >>> text = lh.data.GrammarText(sentences=50, held_out=5).load()
        >>> network = LanguageModel.of(text, width=8, heads=2, layers=1)
        >>> len(lh.inference.generate(network, text, ["a", "the"], max_new_tokens=3))
        2
    """
    options = from_dict(Sampling, sampling)
    trained = _join(model, processor, guide)
    return generate_texts(trained, prompts, options, num_return_sequences, seed=seed)


def _join(model: Decoder, processor: Processor | Corpus, guide: ModelGuide | None) -> TrainedModel:
    """A model with its guide and processor, where these belong together."""
    if isinstance(processor, Corpus):
        processor = processor.processor
    check_instance("processor", processor, Processor, "a Corpus, or the processor of one")
    check_instance("model", model, Decoder, "one that decodes, as Translation, or run.model")
    source, target = processor.source, processor.target
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
    return TrainedModel(model, guide or Tied(model), processor)
