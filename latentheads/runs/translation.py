"""Translation by a model and its vocabularies, without a run folder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, overload

from latentheads.corpora import Corpus, Vocabulary
from latentheads.corpora.speech.vocabulary import bins_of
from latentheads.data import Data, InMemory
from latentheads.decoding.translate import Decoding
from latentheads.errors import shown
from latentheads.guide import ModelGuide, check_pair
from latentheads.guides import Tied
from latentheads.model import Decoder
from latentheads.runs.describe import describe_data
from latentheads.runs.generation import override_decoding, translate_texts
from latentheads.runs.trained_model import TrainedModel


@overload
def translate(
    model: Decoder,
    corpus: Corpus | tuple[Vocabulary, Vocabulary],
    sentences: Iterable[str],
    number: Literal[0] = 0,
    **options: Any,
) -> list[str]: ...


@overload
def translate(
    model: Decoder,
    corpus: Corpus | tuple[Vocabulary, Vocabulary],
    sentences: Iterable[str],
    number: int,
    **options: Any,
) -> list[list[str]]: ...


def translate(
    model: Decoder,
    corpus: Corpus | tuple[Vocabulary, Vocabulary],
    sentences: Iterable[str],
    number: int = 0,
    *,
    guide: ModelGuide | None = None,
    direction: str | None = None,
    seed: int = 0,
    **decoding: Any,
) -> list[str] | list[list[str]]:
    """Translates sentences by a model, without a run folder.

    Args:
        model: A translation model.
        corpus: The corpus that it was trained on, or its source and target vocabulary.
        sentences: Texts.
        number: 0: one translation of each. More: this number of translations of each, every one
            with newly sampled heads.
        guide: The model's guide, if the model selects its heads: the guide's selection is used.
        direction: The task of a model with several tasks, as en-de, de or bible:en-de.
        seed: Seed of sampling.
        **decoding: Options of :class:`latentheads.Decoding`, such as ``beam=5``.

    Returns:
        A translation of each sentence, or a list of them with a number.

    Raises:
        ValueError: The model has another vocabulary or no source, or an option is unknown or out of
            range.
        UnfinishedError: A sentence is too long for the model or for memory.

    Example:
        >>> texts = corpus.source_texts(corpus.test)[:2]
        >>> translations = lh.translate(model, corpus, texts, beam=2, max_tokens=5)
        >>> len(translations)
        2
    """
    source, target, data = _read_vocabularies(corpus)
    if not isinstance(model, Decoder):
        raise ValueError(f"model must be one that decodes, as Translation, got {shown(model)}")
    sizes = {"target": len(target)} | ({} if source is None else {"source": len(source)})
    for side, size in sizes.items():
        if (of_model := model.vocabulary_sizes.get(side, size)) != size:
            raise ValueError(
                f"the {side} vocabulary of corpus has {size:,} tokens, that of the model "
                f"{of_model:,}"
            )
    if guide is not None:
        check_pair(model, guide)
    elif model.selecting_blocks:
        raise ValueError("guide is missing: this model selects its heads by its guide")
    trained = TrainedModel(model, guide or Tied(model), target, source, data)
    options = override_decoding(trained, Decoding(), decoding, number)
    return translate_texts(trained, sentences, options, number, direction=direction, seed=seed)


def _read_vocabularies(corpus: Any) -> tuple[Vocabulary | None, Vocabulary, Data]:
    """Source and target vocabulary, and the options of the data."""
    if isinstance(corpus, Corpus):
        if corpus.source is not None and bins_of(corpus.source):
            raise ValueError(f"corpus {corpus.name!r} has speech: its source is no text")
        return corpus.source, corpus.target, describe_data(corpus)
    is_pair = isinstance(corpus, tuple | list) and len(corpus) == 2
    if not is_pair or not all(isinstance(side, Vocabulary) for side in corpus):
        raise ValueError(
            "corpus must be a Corpus, or its vocabularies (corpus.source, corpus.target), "
            f"got {shown(corpus)}"
        )
    source, target = corpus
    data = InMemory(lowercase=target.lowercase, tokenised=target.tokenised)
    return source, target, data
