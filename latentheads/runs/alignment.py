"""Word alignment of sentences and their translations by the posterior of a run's alignments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from latentheads.analysis.alignments import (
    alignment_distributions,
    likeliest_links,
    samples_alignments,
)
from latentheads.batch import Batch
from latentheads.decoding.translate import OnSkip
from latentheads.metrics.alignment import Link, Links
from latentheads.runs.generation import encode_pairs, raise_on_skip

if TYPE_CHECKING:
    from latentheads.runs.run import Run

__all__ = ["align_lines", "check_alignments"]


def check_alignments(run: Run) -> None:
    """Checks that a run has latent alignments.

    Raises:
        ValueError: It has none.
    """
    if run.source is None:
        raise ValueError(f"{run.path} is a language model: it has no source to align with")
    if not samples_alignments(run.model):
        reason = "has no alignments" if run.model.alignments is None else "has no latent alignments"
        raise ValueError(f"{run.path} {reason}: there is no posterior of them")


def align_lines(
    run: Run,
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
        run: A run with alignments.
        sentences: Lines in the source language.
        translations: A translation of each.
        task: Index of the lines' task, if the run has tasks.
        on_skip: Called for a line that is too long for the run or for memory; None raises an error.

    Returns:
        The links of each line, as pairs of word indices; empty for an empty line.

    Raises:
        ValueError: The run has no alignments, or the numbers of lines and translations differ.
        UnfinishedError: A line cannot be aligned.
    """
    check_alignments(run)
    on_skip = on_skip or raise_on_skip
    encoded = encode_pairs(run, sentences, translations, task, on_skip)
    return encoded.map_batches(partial(_link_batch, run), frozenset(), on_skip)


def _link_batch(run: Run, batch: Batch) -> list[Links]:
    """The word links of every sentence of a batch."""
    assert run.source is not None
    assert batch.source is not None
    has_tags = run.settings.data.mixture is not None and bool(run.settings.data.mixture.tags)
    posterior = alignment_distributions(run.model, run.guide, batch).posterior
    links: list[Links] = []
    for index, heads in enumerate(likeliest_links(posterior, batch, has_tags)):
        source = _name_spaces(run.source.word_ids(batch.source[index].tolist()))
        target = run.target.word_ids(batch.target[index].tolist())
        links.append(_join_words(frozenset().union(*heads), source, target))
    return links


def _name_spaces(places: Sequence[int | None]) -> list[int | None]:
    """The word of every token; a space belongs to the word after it."""
    next_word: int | None = None
    words = []
    for word in reversed(places):
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
