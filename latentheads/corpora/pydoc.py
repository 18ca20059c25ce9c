"""English prose of the Python language reference, from the standard library alone.

`pydoc_data.topics` holds the reference as plain text. Its prose paragraphs make a small real
corpus for a language model; the text differs a little between versions of Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pydoc_data.topics import topics
from typing import NamedTuple

Tokens = tuple[str, ...]

_FUNCTION_WORDS = re.compile(
    r"\b(?:an?|and|are|as|at|be|been|but|by|can|for|from|has|have|if|in|is|it|its|may|must|not?|of"
    r"|on|only|or|should|such|than|that|the|their|then|these|they|this|to|was|when|which|will"
    r"|with)\b"
)
_TOKEN = re.compile(r"(?:e\.g|i\.e)\.|\w+(?:[-.']\w+)*|[^\w\s]")
_SENTENCE_END = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)\s+(?=[A-Z\"(])")
_NOTICE = re.compile(r"^(?:New|Changed|Deprecated since|Added|Removed) (?:in )?version [\d.]+[:.]")
_BULLET = re.compile(r"^(?:[*•-]|\d+\.|\[\d+\])\s+")
_FOOTNOTE = re.compile(r"\s*\[\d+\]")
_EMPHASIS = re.compile(r"\*{1,2}(\w[^*]*?)\*{1,2}")
_CODE = re.compile(r"::=|>>>|^\s*\.\.\. |\+[-=]{3}|^\s*\||={3,}|\*{4,}|-{4,}", re.MULTILINE)
_QUOTED = re.compile(r"\"[^\"]*\"")
_NAME = re.compile(r"\"(\w[\w.]*)(?:\(\))?\"")
_HYPHENATED = re.compile(r"(?<=\w-)\s*\n\s*(?=\w)")
_PLAIN = str.maketrans("\u2018\u2019\u201c\u201d", "''\"\"")

MIN_TOKENS = 3
"""Minimum number of tokens of a sentence; shorter fragments, such as "Syntax:", are dropped."""

MAX_TOKENS = 60
"""Maximum number of tokens of a sentence; a longer one is split into parts of similar length."""

CYCLE = 20
"""Of this many consecutive paragraphs the last is for test, the one before it for validation."""


class Split(NamedTuple):
    """Sentences for training, validation and test."""

    train: list[Tokens]
    valid: list[Tokens]
    test: list[Tokens]


def _cleaned(block: str) -> str:
    """One line of text without bullets, footnote marks, emphasis and version notices."""
    text = _BULLET.sub("", " ".join(_HYPHENATED.sub("", block).split()))
    text = _EMPHASIS.sub(r"\1", _FOOTNOTE.sub("", text))
    return _NOTICE.sub("", text).translate(_PLAIN).strip()


def _is_prose(text: str) -> bool:
    """Whether text is a sentence or more: a capital, a full stop, enough function words."""
    plain = _QUOTED.sub(" ", text.lower())
    words, function_words = re.findall(r"[a-z]+", plain), _FUNCTION_WORDS.findall(plain)
    starts_sentence = text[:1].isupper() or text[:1] in '"('
    return (
        starts_sentence
        and text[-1:] in ".:!?)"
        and len(words) >= 6
        and len(function_words) >= 0.2 * len(words)
    )


def _blocks(text: str) -> Iterator[str]:
    """Blocks between blank lines that hold neither code, table nor heading."""
    for block in re.split(r"\n\s*\n", text):
        if not _CODE.search(block):
            yield block


@cache
def paragraphs() -> tuple[str, ...]:
    """Prose paragraphs in the order of the topics' names, each once, each on one line.

    Code, grammar productions, tables, headings and signatures are left out, and names lose the
    quotes that mark them as code.
    """
    texts = (_cleaned(block) for topic in sorted(topics) for block in _blocks(topics[topic]))
    prose = (_NAME.sub(r"\1", text) for text in texts if _is_prose(text))
    return tuple(dict.fromkeys(prose))


def _pieces(tokens: Tokens) -> Iterator[Tokens]:
    """Splits a sentence that is too long into consecutive pieces of nearly equal length."""
    count = -(-len(tokens) // MAX_TOKENS)
    for piece in range(count):
        yield tokens[piece * len(tokens) // count : (piece + 1) * len(tokens) // count]


def _sentences(paragraph: str) -> Iterator[Tokens]:
    """The sentences of a paragraph as lower-cased words and punctuation marks."""
    for part in _SENTENCE_END.split(paragraph):
        tokens = tuple(_TOKEN.findall(part.lower()))
        if len(tokens) >= MIN_TOKENS:
            yield from _pieces(tokens)


def split() -> Split:
    """The sentences in three parts, as lower-cased words and punctuation marks.

    The index of a paragraph decides its part, so that its sentences stay together.
    """
    parts: Split = Split([], [], [])
    for position, text in enumerate(paragraphs()):
        parts[max(0, position % CYCLE - CYCLE + 3)].extend(_sentences(text))
    return parts
