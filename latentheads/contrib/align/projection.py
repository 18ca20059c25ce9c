"""Labels of spans carried from one language to the other, each with its exact probability.

A span of the source is carried to the words from the first to the last that is linked to it. In the
direction that generates the target, it is right if these two are linked into the span, and no word
before or after them is; in the other one, if no word of the span is linked to a word before or
after them. Each event has a probability by forward passes with all other links left out, divided by
the sum over all links; both are joined by their geometric mean, as those of links.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from numbers import Integral
from typing import TypeVar, overload

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from latentheads.contrib.align.chain import LinkChain
from latentheads.contrib.align.symmetrization import THRESHOLD, LinkPosterior
from latentheads.contrib.align.tokenization import TokenizedLine
from latentheads.errors import shown


@dataclass(frozen=True)
class Span:
    """Consecutive words of a line.

    Attributes:
        start: Index of the first word, from 0.
        end: Index of the last word plus 1.
        label: What the words are, such as ``"LOC"``.
    """

    start: int
    end: int
    label: str = ""


SpanLike = Span | tuple[int, int] | tuple[int, int, str]
"""A span, or its start, its end and its label."""


def to_span(value: object) -> Span:
    """A span, given one or a tuple of its start, its end and its label.

    >>> to_span((0, 2, "LOC"))
    Span(start=0, end=2, label='LOC')
    """
    if isinstance(value, Span):
        return value
    if isinstance(value, (tuple, list)) and len(value) in (2, 3):
        start, end, label = (*value, "")[:3]
        is_index = all(isinstance(x, Integral) and not isinstance(x, bool) for x in (start, end))
        if is_index and isinstance(label, str):
            return Span(int(start), int(end), label)
    raise ValueError(f"a span is Span(0, 2, 'LABEL') or (0, 2, 'LABEL'), got {shown(value)}")


@dataclass(frozen=True)
class ProjectedSpan(Span):
    """A span of the target.

    Attributes:
        probability: Geometric mean of its probabilities in both directions; it ranks spans.
    """

    probability: float = math.nan


def project_spans(
    spans: Sequence[Span],
    posterior: LinkPosterior,
    chains: Sequence[LinkChain],
    row: int,
    lines: tuple[TokenizedLine, TokenizedLine],
) -> list[ProjectedSpan | None]:
    """Carries spans of a line to the target; None for one that no link leads from.

    Args:
        spans: The spans.
        posterior: The posterior of its links.
        chains: The links of both directions of its batch.
        row: Which of the batch it is.
        lines: The tokens of both sides.
    """
    source, target = lines
    projected: list[ProjectedSpan | None] = []
    for span in spans:
        is_linked = posterior.product[span.start : span.end] >= THRESHOLD
        linked = np.flatnonzero(is_linked.any(0))
        if not len(linked):
            projected.append(None)
            continue
        start, end = int(linked[0]), int(linked[-1]) + 1
        inside = _tokens(source, range(span.start, span.end))
        ends = [_tokens(target, [word]) for word in dict.fromkeys((start, end - 1))]
        carried = _tokens(target, range(start, end))
        forward = _ends_probability(chains[0], row, inside, carried, ends, target)
        backward = _inside_probability(chains[1], row, inside, carried, target)
        projected.append(ProjectedSpan(start, end, span.label, math.sqrt(forward * backward)))
    return projected


def _tokens(line: TokenizedLine, words: Sequence[int]) -> list[int]:
    return [token for word in words for token in line.tokens_by_word[word]]


def _ends_probability(
    chain: LinkChain,
    row: int,
    span: Sequence[int],
    carried: Sequence[int],
    ends: Sequence[Sequence[int]],
    line: TokenizedLine,
) -> float:
    """The probability that the ends are the first and the last word that is linked into a span.

    Args:
        chain: The links of a batch, in the direction that generates the target.
        row: The line.
        span: Tokens of the span.
        carried: Tokens of the target from the first to the last end.
        ends: The tokens of each end, of which one at least must be linked into the span.
        line: The target.
    """
    words, positions = chain.weights.linked.shape[1:]
    in_span = _mask(span, positions)
    # what belongs to no word, as punctuation, may be linked to anything
    allowed = (_mask(carried, words) | ~_is_word(line, words))[:, None] | ~in_span
    total = chain.constrained_probability(row, allowed)
    # inclusion and exclusion over the ends that are not linked into the span
    for number in range(1, len(ends) + 1):
        for unlinked in combinations(ends, number):
            less = allowed.clone()
            less[[token for word in unlinked for token in word]] &= ~in_span
            total += (-1) ** number * chain.constrained_probability(row, less)
    return min(max(total, 0.0), 1.0)


def _inside_probability(
    chain: LinkChain, row: int, span: Sequence[int], carried: Sequence[int], line: TokenizedLine
) -> float:
    """The probability that no token of a span is linked to a word outside of the carried one.

    Args:
        chain: The links of a batch, in the direction that generates the source.
        row: The line.
        span: Tokens of the span.
        carried: Tokens of the carried span.
        line: The target.
    """
    words, positions = chain.weights.linked.shape[1:]
    inside = _mask(carried, positions) | ~_is_word(line, positions)
    return chain.constrained_probability(row, ~_mask(span, words)[:, None] | inside)


def _mask(tokens: Sequence[int], size: int) -> Bool[Tensor, " token"]:
    mask = torch.zeros(size, dtype=torch.bool)
    mask[list(tokens)] = True
    return mask


def _is_word(line: TokenizedLine, size: int) -> Bool[Tensor, " token"]:
    """Whether tokens belong to a word; the end of the line does."""
    return ~_mask([token for token, word in enumerate(line.words) if word is None], size)


def spans_of_characters(line: str, spans: Sequence[SpanLike]) -> list[Span]:
    """The spans of words that given spans of characters touch.

    Args:
        line: The line, whose words white space separates.
        spans: Their starts and ends are offsets of characters; a tuple is a span too.

    Raises:
        ValueError: A span holds no character of a word.
    """
    words = _word_offsets(line)
    spans_of_words = []
    for span in map(to_span, spans):
        held = [
            index
            for index, (start, end) in enumerate(words)
            if max(start, span.start) < min(end, span.end)
        ]
        if not held:
            raise ValueError(f"{span} holds no word of {line!r}")
        spans_of_words.append(replace(span, start=held[0], end=held[-1] + 1))
    return spans_of_words


SpanKind = TypeVar("SpanKind", bound=Span)


@overload
def characters_of_spans(line: str, spans: Sequence[SpanKind]) -> list[SpanKind]: ...
@overload
def characters_of_spans(line: str, spans: Sequence[SpanLike]) -> list[Span]: ...
def characters_of_spans(line: str, spans: Sequence[SpanLike]) -> Sequence[Span]:
    """Spans of words as offsets of characters, from their first word to their last.

    Args:
        line: The line, whose words white space separates.
        spans: Spans of its words; they keep their labels and probabilities.

    Raises:
        ValueError: A span is empty, or does not lie within the line.
    """
    words = _word_offsets(line)
    spans_of_words = _to_spans(spans, len(words))
    return [replace(s, start=words[s.start][0], end=words[s.end - 1][1]) for s in spans_of_words]


def _to_spans(spans: Sequence[SpanLike], words: int) -> list[Span]:
    """Spans, after a check that each lies within a line of this number of words."""
    spans_of_words = [to_span(span) for span in spans]
    for span in spans_of_words:
        if not 0 <= span.start < span.end <= words:
            raise ValueError(f"a line has {words:,} words, and no {span}")
    return spans_of_words


def _word_offsets(line: str) -> list[tuple[int, int]]:
    return [match.span() for match in re.finditer(r"\S+", line)]


def spans_of_tags(tags: Sequence[str]) -> list[Span]:
    """The spans of BIO tags; a tag ``I-`` after no span of its label starts a new one."""
    spans: list[Span] = []
    for index, tag in enumerate(tags):
        prefix, _, label = tag.partition("-")
        if prefix == "O" and not label:
            continue
        if prefix not in ("B", "I"):
            raise ValueError(f"a tag must be O, B-LABEL or I-LABEL, got {tag!r}")
        last = spans[-1] if spans else None
        if prefix == "I" and last is not None and (last.end, last.label) == (index, label):
            spans[-1] = Span(last.start, index + 1, label)
        else:
            spans.append(Span(index, index + 1, label))
    return spans


def tags_of_spans(spans: Sequence[SpanLike], words: int) -> list[str]:
    """BIO tags of spans; a word of several spans has the tag of the earliest in the list.

    Args:
        spans: The spans.
        words: Number of words of their line.

    Raises:
        ValueError: A span is empty, or does not lie within the line.
    """
    tags = ["O"] * words
    for span in _to_spans(spans, words):
        prefix = "B"
        for index in range(span.start, span.end):
            is_free = tags[index] == "O"
            if is_free:
                tags[index] = f"{prefix}-{span.label}"
            prefix = "I" if is_free else "B"
    return tags
