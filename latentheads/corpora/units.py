"""The tokens of a running text: its words, or subwords."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Annotated

from annotated_types import Ge, Le

from latentheads.corpora.rows import Rows
from latentheads.corpora.subwords import Subwords
from latentheads.corpora.vocabulary import Vocabulary, Words
from latentheads.options import Choice, Count, options_class

VocabSize = Annotated[int, Ge(1), Le(2**24)]
"""Above the limit the tokenizer ends the process."""


@options_class()
class Unit(Choice, ABC):
    """The tokens of a running text."""

    @classmethod
    def choices(cls) -> Mapping[str, type[Unit]]:
        return {"word": WordUnit, "subword": SubwordUnit}

    @abstractmethod
    def learn(self, lines: Iterable[str], lowercase: bool) -> tuple[Vocabulary, Rows]:
        """Learns the vocabulary of a text, and encodes the text."""


@options_class()
class WordUnit(Unit):
    """Words, separated by spaces.

    Attributes:
        min_count: A word seen less often in training is unknown.
    """

    min_count: Count = 1

    def learn(self, lines: Iterable[str], lowercase: bool) -> tuple[Vocabulary, Rows]:
        """The frequent words; all others become UNK."""
        return Words.learn(lines, self.min_count, lowercase)


@options_class()
class SubwordUnit(Unit):
    """Subwords, learned by BPE.

    Attributes:
        vocab_size: Subwords, at most.
    """

    vocab_size: VocabSize = 10_000

    def learn(self, lines: Iterable[str], lowercase: bool) -> tuple[Vocabulary, Rows]:
        """The subwords of the text, which is read twice."""
        subwords = Subwords.train(lines, self.vocab_size, lowercase)
        return subwords, subwords.encode_all(lines)
