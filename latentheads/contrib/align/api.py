"""Aligning the words of two texts in one call."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from latentheads.checks import (
    check_as_many,
    check_choice,
    check_instance,
    check_least,
    check_list,
    check_not_empty,
    check_within,
)
from latentheads.contrib.align.aligner import WordAligner, infer_posteriors, train_aligner
from latentheads.contrib.align.model import GUIDES
from latentheads.contrib.align.projection import ProjectedSpan, Span, SpanLike, to_span
from latentheads.contrib.align.symmetrization import THRESHOLD, LinkPosterior, select_links
from latentheads.contrib.align.tokenization import (
    FIRST_LINES,
    SPLITS,
    Line,
    TokenizedLine,
    describe_long_words,
    tokenize_line,
)
from latentheads.contrib.align.training import AlignerOptions
from latentheads.contrib.align.workers import check_workers
from latentheads.errors import naming, shown
from latentheads.frames import make_frame
from latentheads.metrics.alignment import Link

if TYPE_CHECKING:
    import pandas as pd

MAX_WORDS = 200
"""Most words of a line that is aligned."""

MOSTLY_UNKNOWN = 0.5
"""Share of the words of a side above which they are not those of an aligner's language."""

FEW_WORDS = 20
"""Words of a side below which it may well have new words alone."""

Report = Callable[[int, int], None]
"""Called with the number of batches that are done, and of all."""


class TokenizedText(Sequence[tuple[TokenizedLine, TokenizedLine]]):
    """The tokens of both sides of sentence pairs, made when they are read; none of a long line.

    Args:
        source: Lines in one language.
        target: The translation of each.
        split: What separates tokens.
        max_words: Most tokens of a line.
    """

    def __init__(
        self, source: Sequence[Line], target: Sequence[Line], split: str, max_words: int
    ) -> None:
        self._lines, self._split, self._max_words = (source, target), split, max_words
        self.skipped: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._lines[0])

    def __getitem__(self, index: int) -> tuple[TokenizedLine, TokenizedLine]:  # type: ignore[override]
        if index >= len(self):
            raise IndexError(index)
        left, right = (tokenize_line(side[index], self._split) for side in self._lines)
        longest = max(len(left.tokens), len(right.tokens))
        if longest <= self._max_words:
            return left, right
        self.skipped[index] = f"{longest:,} words, more than max_words {self._max_words:,}"
        return TokenizedLine((), (), left.length), TokenizedLine((), (), right.length)


@dataclass(frozen=True)
class Alignment:
    """The links of a parallel text, line after line.

    Attributes:
        aligner: The trained aligner.
        posteriors: Yields the posterior of the links of each line.
        skipped: Why a line has no links, by its index; whole after the last posterior.
        projected: The spans of a line as they are carried to the target, by its index; whole after
            the last posterior.
    """

    aligner: WordAligner
    posteriors: Iterator[LinkPosterior]
    skipped: dict[int, str]
    projected: dict[int, list[ProjectedSpan | None]]


@dataclass(frozen=True, repr=False)
class AlignedText:
    """The links of a parallel text.

    Attributes:
        posteriors: The posterior of the links of each line, by words that white space separates;
            all NaN of a line that is too long or has an empty side.
        aligner: The trained aligner, which :func:`align` takes for further lines; None if networks
            aligned them.
        skipped: Why a line has no links, by its index: it is too long.
    """

    posteriors: Sequence[LinkPosterior]
    aligner: WordAligner | None
    skipped: dict[int, str]

    def __repr__(self) -> str:
        return f"AlignedText({len(self.posteriors):,} lines, {sum(map(len, self.links)):,} links)"

    @property
    def links(self) -> list[list[Link]]:
        """The links of each line of which both directions have a geometric mean of .4 or more."""
        return self.select()

    def select(self, symmetrize: str = "product", threshold: float = THRESHOLD) -> list[list[Link]]:
        """The sorted links of each line, as indices of a source and of a target word.

        Args:
            symmetrize: product, grow, intersection, grow-diag-final-and, forward or backward.
            threshold: The least geometric mean of both directions' probabilities of a link of
                ``product``, and of those that ``grow`` begins with.

        Raises:
            ValueError: ``symmetrize`` is another, or the threshold is not between 0 and 1.
        """
        check_within("threshold", threshold, 0, 1)
        return [sorted(select_links(p, symmetrize, threshold)) for p in self.posteriors]

    def to_frame(self, symmetrize: str = "product", threshold: float = THRESHOLD) -> pd.DataFrame:
        """A row for each link, with the index of its line, both words, and its probability.

        The probability is the geometric mean of both directions.

        Args:
            symmetrize: As in :meth:`select`.
            threshold: As in :meth:`select`; 0: all pairs of words of ``product``.
        """
        rows: list[tuple[int, int, int, float]] = []
        selected = zip(self.posteriors, self.select(symmetrize, threshold), strict=True)
        for line, (posterior, links) in enumerate(selected):
            product = posterior.product
            rows += [(line, source, target, product[source, target]) for source, target in links]
        values = np.array(rows, dtype=float).reshape(-1, 4)
        indices = zip(("line", "source", "target"), values.T.astype(int))
        return make_frame({**dict(indices), "probability": values[:, 3]})


def list_lines(source: Any, target: Any, words: bool = False) -> tuple[list[Any], list[Any]]:
    """Makes lists of two texts that have lines, and equally many.

    Lines are counted from the first, whatever its index: a pandas Series has labels.
    """
    for name, lines in (("source", source), ("target", target)):
        is_table = getattr(lines, "ndim", 1) != 1  # that of pandas yields the names of columns
        is_other = isinstance(lines, (str, bytes, Mapping)) or not hasattr(lines, "__getitem__")
        if is_table or is_other:
            kind = "one text" if isinstance(lines, str) else type(lines).__name__
            raise ValueError(f"{name} must be a list of lines, got {kind}")
    source, target = list(source), list(target)
    check_as_many("lines of source", source, "those of target", target)
    check_not_empty("lines", source)
    accepted = "a line of text or a list of its words" if words else "a line of text"
    for name, lines in (("source", source), ("target", target)):
        for index, line in enumerate(lines):
            if not isinstance(line, str) and not (words and _is_words(line)):
                raise ValueError(f"{name}[{index}] must be {accepted}, got {shown(line)}")
    return source, target


def _is_words(line: object) -> bool:
    """Whether a line is a list of words, none of them blank."""
    return isinstance(line, (list, tuple)) and all(
        isinstance(word, str) and word.strip() for word in line
    )


def _check_aligners(
    aligner: Any, start: Any, options: AlignerOptions | None, split: str | None
) -> None:
    """Checks that a trained aligner aligns lines or is trained on, as it was trained."""
    check_instance("options", options, AlignerOptions | None, "AlignerOptions")
    if aligner is not None and options is not None:
        raise ValueError("options are of training: a trained aligner has its own")
    if aligner is not None and start is not None:
        raise ValueError("aligner aligns without training, start is trained on: give one")
    for name, trained in (("aligner", aligner), ("start", start)):
        if trained is None:
            continue
        check_instance(
            name, trained, WordAligner, "a WordAligner, which load_aligner reads from a file"
        )
        any_split = trained is start and trained.is_dictionary
        if split not in (None, trained.split) and not any_split:
            raise ValueError(f"the aligner was trained with split {trained.split!r}, got {split!r}")


def _list_spans(spans: Sequence[Sequence[SpanLike]], lines: TokenizedText) -> list[list[Span]]:
    """The spans of each line, after a check that they are those of its source words."""
    spans = list(spans)
    check_as_many("lists of spans", spans, "lines", lines)
    listed: list[list[Span]] = []
    for index, line_spans in enumerate(spans):
        check_list(f"spans[{index}]", line_spans)
        with naming(f"spans[{index}]"):
            listed.append([to_span(span) for span in line_spans])
        words = lines[index][0].length if line_spans else 0
        for span in listed[-1]:
            if not 0 <= span.start < span.end <= words:
                raise ValueError(f"line {index + 1:,} has {words:,} words, and no {span}")
    return listed


def describe_unknown(
    aligner: WordAligner, source: Sequence[Line], target: Sequence[Line]
) -> str | None:
    """What may be wrong if an aligner does not know most words of a side, or None.

    Args:
        aligner: The aligner; of a dictionary alone the result is None.
        source: Lines in one language.
        target: The translation of each.
    """
    if aligner.is_dictionary:
        return None
    unknown, is_swapped = [], False
    vocabularies = aligner.source, aligner.target
    sides = zip(("source", "target"), (source, target), vocabularies, vocabularies[::-1])
    for name, lines, own, other in sides:
        first = (tokenize_line(line, aligner.split) for line in islice(lines, FIRST_LINES))
        words = [word for line in first for word in line.tokens]
        new, new_to_other = (
            sum(map(vocabulary.new_words([words]).__contains__, words))
            for vocabulary in (own, other)
        )
        if new > MOSTLY_UNKNOWN * len(words) and (new_to_other < new or len(words) >= FEW_WORDS):
            unknown.append(f"{new / len(words):.0%} of the words of {name}")
            is_swapped = is_swapped or new_to_other < new
    if not unknown:
        return None
    swapped = ": source and target seem to be swapped" if is_swapped else ""
    return f"the aligner does not know {' and '.join(unknown)}{swapped}"


def start_alignment(
    source: Sequence[Line],
    target: Sequence[Line],
    *,
    aligner: WordAligner | None = None,
    options: AlignerOptions | None = None,
    split: str | None = None,
    guide: str = "exact",
    max_words: int = MAX_WORDS,
    report: Report = lambda done, total: None,
    start: WordAligner | None = None,
    workers: int = 1,
    spans: Sequence[Sequence[SpanLike]] | None = None,
) -> Alignment:
    """Trains an aligner if none is given, and aligns lines as their posteriors are asked for.

    It is :func:`align`, with its options and errors, for texts whose posteriors are too many to
    hold at once. ``spans`` are those of source words of each line, which are carried to the target.
    """
    source, target = list_lines(source, target, words=True)
    check_least({"max_words": max_words}, max_words=1)
    check_workers(workers)
    check_choice("guide", guide, GUIDES)
    _check_aligners(aligner, start, options, split)
    existing = aligner or start
    if split is None:
        split = SPLITS[0] if existing is None else existing.split
    lines = TokenizedText(source, target, split, max_words)
    listed = [] if spans is None else _list_spans(spans, lines)
    if aligner is not None:
        trained = aligner
        new = trained.read([(left.tokens, right.tokens) for left, right in lines])
        batches, models_of = new.batches, lambda index: trained.models(new, new.batches[index])
    else:
        if not any(left.tokens and right.tokens for left, right in lines):
            raise ValueError(
                f"no line has 1 to {max_words:,} words on both sides: there is nothing to train on"
            )
        pairs = ((left.tokens, right.tokens) for left, right in lines)
        trained, training = train_aligner(pairs, options, report, start, workers)
        trained = replace(trained, split=split)
        batches, models_of = training.bitext.batches, training.models
    projected: dict[int, list[ProjectedSpan | None]] = {
        index: [None] * len(line) for index, line in enumerate(listed)
    }
    posteriors = infer_posteriors(
        batches, models_of, lines, guide, report, workers, listed, projected
    )
    return Alignment(trained, posteriors, lines.skipped, projected)


def align(
    source: Sequence[Line],
    target: Sequence[Line],
    *,
    aligner: WordAligner | None = None,
    options: AlignerOptions | None = None,
    split: str | None = None,
    guide: str = "exact",
    max_words: int = MAX_WORDS,
    report: Report | None = None,
    start: WordAligner | None = None,
    workers: int = 1,
) -> AlignedText:
    """Aligns the words of lines with those of their translations.

    Without an aligner it trains one on the lines. Case is ignored.

    >>> english, german = ["the house", "the book", "a book"], ["das haus", "das buch", "ein buch"]
    >>> aligned = lh.align(english, german)
    >>> aligned.links[2]
    [(0, 0), (1, 1)]

    Args:
        source: Lines in one language, each a text or a list of its words.
        target: The translation of each.
        aligner: A trained aligner, for new lines: probabilities of lines that it was trained on are
            too high, since their own counts stay in. None trains one.
        options: Options of training.
        split: spaces (default): what stands between white space is aligned as it is. punctuation:
            words and their punctuation are aligned separately, also those of a list of words; links
            are those of words, without their punctuation. characters: letters are aligned. A
            trained aligner has its own.
        guide: exact, filtered, lexical, viterbi or tied: what links are inferred by.
        max_words: Most words of a line; a longer one has no links.
        report: Called with the number of batches that are done, and of all.
        start: A trained aligner that is trained on with these lines, so that old and new ones
            count.
        workers: Processes that share the work. Their number changes only the rounding of results.

    Raises:
        ValueError: The texts have no lines, or differ in their number; a trained aligner was given
            with options of training or another split; an option is out of range.

    Warns:
        UserWarning: Words are so long that a text seems to have no spaces between them; a
            trained aligner does not know most of them; or lines are too long to be aligned.
    """
    alignment = start_alignment(
        source,
        target,
        aligner=aligner,
        options=options,
        split=split,
        guide=guide,
        max_words=max_words,
        report=report or (lambda done, total: None),
        start=start,
        workers=workers,
    )
    if alignment.aligner.split != "characters":
        for name, lines in (("source", source), ("target", target)):
            if message := describe_long_words(lines):
                warnings.warn(f"{name}: {message}", stacklevel=2)
    existing = aligner or start
    if existing is not None and (message := describe_unknown(existing, source, target)):
        warnings.warn(message, stacklevel=2)
    posteriors = list(alignment.posteriors)
    if skipped := alignment.skipped:
        first = min(skipped)
        warnings.warn(
            f"{len(skipped):,} of {len(posteriors):,} lines have no links, the first is "
            f"source[{first}]: {skipped[first]}",
            stacklevel=2,
        )
    return AlignedText(posteriors, alignment.aligner, skipped)


def project(
    source: Sequence[Line],
    target: Sequence[Line],
    spans: Sequence[Sequence[SpanLike]],
    **options: Any,
) -> list[list[ProjectedSpan | None]]:
    """Carries spans of source words to the target.

    >>> english, german = ["the house", "the book", "a book"], ["das haus", "das buch", "ein buch"]
    >>> spans = [[(1, 2, "THING")], [], []]
    >>> lh.contrib.align.project(english, german, spans)[0][0].label
    'THING'

    Args:
        source: Lines in one language, each a text or a list of its words.
        target: The translation of each.
        spans: The spans of each line, of words, or of letters with ``split="characters"``: each a
            ``Span``, or a tuple of its start, its end and its label.
        **options: Those of :func:`align`.

    Returns:
        The spans of each line, or None where no link leads from one. The probability of a span is
        the geometric mean of both directions'. It ranks spans, and is not the rate of right ones.

    Raises:
        ValueError: As :func:`align`; or a span does not lie within its line.
    """
    check_list("spans", spans)
    alignment = start_alignment(source, target, spans=spans, **options)
    for _ in alignment.posteriors:
        pass
    return [*alignment.projected.values()]
