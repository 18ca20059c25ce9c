"""Links between the words of a sentence and of its translation, by a run's alignments."""

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
from latentheads.decoding.translate import Lose
from latentheads.metrics.alignment import Link, Links
from latentheads.runs.generation import encode_pairs, lose_nothing

if TYPE_CHECKING:
    from latentheads.runs.run import Run

__all__ = ["align_lines", "check_alignments"]


def check_alignments(run: Run) -> None:
    """Refuses a run that draws no alignments.

    Raises:
        ValueError: It draws none.
    """
    if run.source is None:
        raise ValueError(f"{run.path} is a language model: it has no source to align with")
    if not samples_alignments(run.model):
        why = "has no alignments" if run.model.alignments is None else "draws no alignments"
        raise ValueError(f"{run.path} {why}: there is no posterior of them")


def align_lines(
    run: Run,
    sentences: Iterable[str],
    translations: Iterable[str],
    task: int | None = None,
    lose: Lose | None = None,
) -> list[Links]:
    """Links the words of lines with those of their translations.

    A token of a translation points at the source token that is likeliest under the exact posterior,
    by each head; the ends of both are pointed at by none. Words, as ``str.split`` cuts lines,
    are linked where a token of one points at a token of the other, by any head; who points at a
    space means the word behind it.

    Args:
        run: A run with alignments.
        sentences: Lines in its source language.
        translations: A translation of each.
        task: The place of the lines' task, where the run has tasks.
        lose: Called with the place of a line that is too long for the run or for the machine, and
            why; None ends the work.

    Returns:
        For each line pairs of places of a source and a target word; none for an empty line.

    Raises:
        ValueError: The run has no alignments, or there are not as many translations as lines.
        UnfinishedError: A line is lost.
    """
    check_alignments(run)
    lose = lose or lose_nothing
    known = encode_pairs(run, sentences, translations, task, lose)
    return known.work_through(partial(_link_batch, run), frozenset(), lose)


def _link_batch(run: Run, batch: Batch) -> list[Links]:
    """The links between the words of every sentence of a batch."""
    assert run.source is not None
    assert batch.source is not None
    tagged = run.settings.data.mixture is not None and bool(run.settings.data.mixture.tags)
    posterior = alignment_distributions(run.model, run.guide, batch).posterior
    found: list[Links] = []
    for place, heads in enumerate(likeliest_links(posterior, batch, tagged)):
        source = _name_spaces(run.source.word_ids(batch.source[place].tolist()))
        target = run.target.word_ids(batch.target[place].tolist())
        found.append(_join_words(frozenset().union(*heads), source, target))
    return found


def _name_spaces(places: Sequence[int | None]) -> list[int | None]:
    """The word of every token, that of a space the word behind it, which the space begins."""
    behind: int | None = None
    found = []
    for place in reversed(places):
        behind = behind if place is None else place
        found.append(behind)
    return found[::-1]


def _join_words(
    links: Links, source: Sequence[int | None], target: Sequence[int | None]
) -> frozenset[Link]:
    """Links between the words of tokens; a token that is no word has none."""
    pairs = ((source[left], target[right]) for left, right in links)
    return frozenset((one, two) for one, two in pairs if one is not None and two is not None)
