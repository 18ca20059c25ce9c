"""Word alignment of sentences and their translations by the posterior of latent alignments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from latentheads.analysis.alignments import (
    alignment_distributions,
    aligns_with_text,
    likeliest_links,
    samples_alignments,
)
from latentheads.batch import Batch
from latentheads.decoding.translate import OnSkip
from latentheads.metrics.alignment import Link, Links
from latentheads.runs.generation import encode_pairs, raise_on_skip, select_task
from latentheads.runs.trained_model import TrainedModel

__all__ = ["align_lines", "align_texts", "check_alignments"]


def check_alignments(trained: TrainedModel) -> None:
    """Checks that a model has latent alignments.

    Raises:
        ValueError: It has none.
    """
    if trained.source is None:
        raise ValueError(f"{trained.name} is a language model: it has no source to align with")
    if not samples_alignments(trained.model):
        missing = "latent alignments" if aligns_with_text(trained.model) else "alignments"
        reason = f"has no {missing}"
        raise ValueError(f"{trained.name} {reason}: there is no posterior of them")


def align_lines(
    trained: TrainedModel,
    sentences: Iterable[str],
    translations: Iterable[str],
    task: int | None = None,
    on_skip: OnSkip | None = None,
) -> list[Links]:
    """Aligns the words of lines with those of their translations.

    In each head, a target token is aligned with the likeliest source token under the exact
    posterior; EOS is not aligned. Two words, as split by ``str.split``, are linked if any of their
    tokens are aligned in any head. A source token that is a space belongs to the word after it.

    Args:
        trained: A model with latent alignments.
        sentences: Lines in the source language.
        translations: A translation of each.
        task: Index of the lines' task, if the model has tasks.
        on_skip: Called for a line that is too long for the model or memory; None raises an error.

    Returns:
        The links of each line, as pairs of word indices; empty for an empty line.

    Raises:
        ValueError: The model has no alignments, or the numbers of lines and translations differ.
        UnfinishedError: A line cannot be aligned.
    """
    check_alignments(trained)
    on_skip = on_skip or raise_on_skip
    encoded = encode_pairs(trained, sentences, translations, task, on_skip)
    return encoded.map_batches(partial(_link_batch, trained), frozenset(), on_skip)


def align_texts(
    trained: TrainedModel,
    sentences: Iterable[str],
    translations: Iterable[str],
    *,
    direction: str | None = None,
) -> list[list[Link]]:
    """Aligns the words of sentences with those of their translations; see :func:`align_lines`.

    Args:
        trained: A model with latent alignments.
        sentences: Texts.
        translations: A translation of each: the model's own, or any other.
        direction: The task of a model with several tasks, as en-de, de or bible:en-de.

    Returns:
        The sorted links of each sentence, as pairs of word indices.
        :func:`latentheads.metrics.alignment.write_pharaoh` formats them.

    Raises:
        ValueError: The model has no alignments, or the numbers of texts differ.
        UnfinishedError: A sentence is too long for the model or for memory.
    """
    check_alignments(trained)
    task = select_task(trained, direction)
    return [sorted(links) for links in align_lines(trained, sentences, translations, task)]


def _link_batch(trained: TrainedModel, batch: Batch) -> list[Links]:
    """The word links of every sentence of a batch."""
    assert trained.source is not None
    assert batch.source is not None
    has_tags = trained.data.mixture is not None and bool(trained.data.mixture.tags)
    posterior = alignment_distributions(trained.model, trained.guide, batch).posterior
    links: list[Links] = []
    for index, heads in enumerate(likeliest_links(posterior, batch, has_tags)):
        source = _name_spaces(trained.source.word_ids(batch.source[index].tolist()))
        target = trained.target.word_ids(batch.target[index].tolist())
        links.append(_join_words(frozenset().union(*heads), source, target))
    return links


def _name_spaces(word_ids: Sequence[int | None]) -> list[int | None]:
    """The word of every token; a space belongs to the word after it."""
    next_word: int | None = None
    words = []
    for word in reversed(word_ids):
        next_word = next_word if word is None else word
        words.append(next_word)
    return words[::-1]


def _join_words(
    links: Links, source: Sequence[int | None], target: Sequence[int | None]
) -> frozenset[Link]:
    """Maps links between tokens to links between words; tokens outside words have none."""
    pairs = ((source[source_token], target[target_token]) for source_token, target_token in links)
    return frozenset(
        (source_word, target_word)
        for source_word, target_word in pairs
        if source_word is not None and target_word is not None
    )
