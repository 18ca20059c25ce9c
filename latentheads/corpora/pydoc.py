"""English prose of the Python language reference, from the standard library alone.

`pydoc_data.topics` holds the reference as plain text. Its prose paragraphs make a small real
corpus for a language model; the text differs a little between versions of Python.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pydoc_data.topics import topics
from typing import NamedTuple

__all__ = ["Split", "paragraphs", "sentences", "split"]

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
_SHORTEST = 3


class Split(NamedTuple):
    """Sentences to train on, to validate on and to test on."""

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
    words, common = re.findall(r"[a-z]+", plain), _FUNCTION_WORDS.findall(plain)
    begins = text[:1].isupper() or text[:1] in '"('
    return begins and text[-1:] in ".:!?)" and len(words) >= 6 and len(common) >= 0.2 * len(words)


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


def _pieces(tokens: Tokens, maximum: int) -> Iterator[Tokens]:
    """Consecutive pieces of at most `maximum` tokens, of nearly equal length."""
    count = -(-len(tokens) // maximum)
    for piece in range(count):
        yield tokens[piece * len(tokens) // count : (piece + 1) * len(tokens) // count]


def _tokenised(texts: Iterable[str], maximum: int) -> list[Tokens]:
    """Sentences of paragraphs as lower-cased words and punctuation marks."""
    parts = (part for text in texts for part in _SENTENCE_END.split(text))
    tokens = (tuple(_TOKEN.findall(part.lower())) for part in parts)
    kept = (sentence for sentence in tokens if len(sentence) >= _SHORTEST)
    return [piece for sentence in kept for piece in _pieces(sentence, maximum)]


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"{name} must be at least {least}; got {value!r}")


def sentences(*, maximum: int = 60) -> list[Tokens]:
    """Sentences in the order of `paragraphs`, as lower-cased words and punctuation marks.

    Fragments of one or two tokens, such as "Syntax:", are left out.

    Args:
        maximum: Most tokens of a sentence; a longer one becomes several of similar length.

    Raises:
        ValueError: `maximum` is below 3.
    """
    _at_least("maximum", maximum, _SHORTEST)
    return _tokenised(paragraphs(), maximum)


def split(*, maximum: int = 60, every: int = 20) -> Split:
    """Sentences in three parts, decided by the position of their paragraph.

    Of every `every` paragraphs the last is for testing, the one before it for validation, and the
    others for training, so the sentences of a paragraph stay together.

    Args:
        maximum: Most tokens of a sentence, as in `sentences`.
        every: Length of the cycle, at least 3.

    Raises:
        ValueError: `maximum` or `every` is too small.
    """
    _at_least("maximum", maximum, _SHORTEST)
    _at_least("every", every, 3)
    parts: Split = Split([], [], [])
    for position, text in enumerate(paragraphs()):
        part = max(0, position % every - every + 3)
        parts[part].extend(_tokenised([text], maximum))
    return parts
