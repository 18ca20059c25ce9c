"""A corpus of running text for a language model, as lines or in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from latentheads.batch import UNK
from latentheads.corpora.corpus import Corpus
from latentheads.corpora.part import Log, Part
from latentheads.corpora.processor import Processor
from latentheads.corpora.rows import Rows
from latentheads.corpora.text import PARTS
from latentheads.corpora.units import Unit, WordUnit
from latentheads.corpora.vocabulary import Vocabulary
from latentheads.options import in_group

Lines = Callable[[], Iterable[str]]
"""Returns an iterator over the lines of a text, from its beginning at every call."""


def text_corpus(
    name: str,
    train: Lines,
    valid: Lines,
    test: Lines,
    block_size: int = 0,
    unit: Unit | None = None,
    lowercase: bool = False,
    log: Log | None = None,
) -> Corpus:
    """Makes a corpus for a language model from a text in three parts.

    Every line ends with EOS. Only token ids are kept in memory, four bytes for each.

    Args:
        name: Name of the corpus.
        train: Text for training.
        valid: Text for validation.
        test: Text for test.
        block_size: Number of tokens of the blocks that a part is split into, across lines; 0 makes
            every line a sentence.
        unit: ``WordUnit()``, words separated by spaces, or ``SubwordUnit()``, learned by BPE;
            words by default.
        lowercase: Whether to lower-case the text.
        log: Called with one line about the number of tokens, vocabulary size and unknown words.

    Raises:
        ValueError: A part has no word, or an option is out of range.
    """
    texts = [_Text(lines) for lines in (train, valid, test)]
    with in_group("unit"):
        vocabulary, train_rows = (unit or WordUnit()).learn(texts[0], lowercase)
    rows = train_rows, *(vocabulary.encode_all(text) for text in texts[1:])
    for part, text in zip(PARTS, texts, strict=True):
        if text.words == text.lines:
            raise ValueError(f"{name} has no word in {part}")
    train_part, valid_part, test_part = (
        Part(
            Rows.in_blocks(part_rows.tokens, block_size) if block_size else part_rows,
            None,
            block_size=block_size,
            words=text.words,
        )
        for part_rows, text in zip(rows, texts, strict=True)
    )
    if log is not None:
        log(_summary(vocabulary, train_part, valid_part, test_part))
    return Corpus(
        name, train_part, valid_part, test_part, Processor(vocabulary, block_size=block_size)
    )


class _Text:
    """The lines of a part, counted on every iteration.

    Attributes:
        words: Number of words of the last iteration, plus one for the end of each line.
        lines: Number of lines of the last iteration.
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


def _summary(vocabulary: Vocabulary, *parts: Part) -> str:
    tokens = " / ".join(f"{part.tokens:,}" for part in parts)
    unknown = " / ".join(
        f"{100 * float(np.mean(part.targets.tokens == UNK)):.3g}" for part in parts
    )
    return f"{tokens} tokens, vocabulary size {len(vocabulary):,}, {unknown} % unknown"
