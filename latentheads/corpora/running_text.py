"""A running text cut into blocks, for a language model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from latentheads.batch import UNK
from latentheads.corpora.corpus import Corpus, Part, Tell
from latentheads.corpora.rows import Rows
from latentheads.corpora.subwords import Subwords
from latentheads.corpora.text import PARTS
from latentheads.corpora.vocabulary import Unit, Vocabulary, Words

__all__ = ["Lines", "prose"]

Lines = Callable[[], Iterable[str]]
"""Reads the lines of a text from its beginning, as often as it is called."""


def prose(
    name: str,
    train: Lines,
    valid: Lines,
    test: Lines,
    block: int = 0,
    unit: Unit = "word",
    types: int = 10_000,
    minimum: int = 1,
    lowercase: bool = False,
    tell: Tell | None = None,
) -> Corpus:
    """Makes a corpus from a text in three parts.

    Every line ends with EOS. Tokens are held as numbers only, so that a text of a hundred million
    words takes four bytes for each.

    Args:
        name: What the corpus is called.
        train: Text to train on.
        valid: The same for validation.
        test: The same for testing.
        block: Tokens of the blocks that a part is cut into, across lines; 0 keeps every line alone.
        unit: Words with spaces between, or subwords learned by BPE.
        types: Subwords, at most.
        minimum: A word seen less often in training is unknown.
        lowercase: Whether to lower-case the text.
        tell: Called with one line about tokens, types and unknown words.

    Raises:
        ValueError: A part has no word, or an option is out of range.
    """
    texts = [_Text(lines) for lines in (train, valid, test)]
    vocabulary, first = _learn(texts[0], unit, types, minimum, lowercase)
    rows = first, *(vocabulary.encode_all(text) for text in texts[1:])
    for part, text in zip(PARTS, texts, strict=True):
        if text.words == text.lines:
            raise ValueError(f"{name} has no word in {part}")
    learned, watched, reported = (
        Part(Rows.cut(found.tokens, block) if block else found, None, block=block, words=text.words)
        for found, text in zip(rows, texts, strict=True)
    )
    if tell is not None:
        tell(_said(vocabulary, learned, watched, reported))
    return Corpus(name, learned, watched, reported, vocabulary)


class _Text:
    """The lines of a part, counted whenever they are read.

    Attributes:
        words: Words of the last reading, and one for the end of each line.
        lines: Its lines.
    """

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self.words = self.lines = 0

    def __iter__(self) -> Iterator[str]:
        self.words = self.lines = 0
        for line in self._lines():
            self.words += len(line.split()) + 1
            self.lines += 1
            yield line


def _learn(
    text: _Text, unit: Unit, types: int, minimum: int, lowercase: bool
) -> tuple[Vocabulary, Rows]:
    """The vocabulary of a text, and the text in it."""
    if unit == "word":
        return Words.learn(text, minimum, lowercase)
    subwords = Subwords.train(text, types, lowercase)
    return subwords, subwords.encode_all(text)


def _said(vocabulary: Vocabulary, *parts: Part) -> str:
    tokens = " / ".join(f"{part.tokens:,}" for part in parts)
    unknown = " / ".join(
        f"{100 * float(np.mean(part.targets.tokens == UNK)):.2g}" for part in parts
    )
    return f"{tokens} tokens of {len(vocabulary):,} types, {unknown} % of them unknown"
