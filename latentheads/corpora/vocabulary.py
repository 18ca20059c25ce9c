"""What text is made of: units with ids, the special tokens first."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from latentheads.batch import EOS, SPECIALS, UNK
from latentheads.corpora.rows import Rows

__all__ = ["Vocabulary", "Words"]


class Vocabulary(ABC):
    """One side of a corpus: turns a line of text into ids and back."""

    kind: str

    @abstractmethod
    def __len__(self) -> int:
        """Number of types, special tokens included."""

    @abstractmethod
    def encode(self, line: str) -> list[int]:
        """Turns a line into ids, ended by EOS; what is unknown becomes UNK."""

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """Turns ids into text, up to the first EOS."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Everything that makes the same vocabulary again, with its ``kind``."""

    def encode_all(self, lines: Iterable[str]) -> Rows:
        """Encodes every line."""
        return Rows.of(self.encode(line) for line in lines)


class Words(Vocabulary):
    """Words with a space between.

    Args:
        words: The types, without the special tokens.
    """

    kind = "words"

    def __init__(self, words: Sequence[str]) -> None:
        self.words = [*SPECIALS, *words]
        self._ids = {word: place for place, word in enumerate(self.words)}

    @classmethod
    def count(cls, lines: Iterable[str], minimum: int = 1) -> Words:
        """Collects the words that occur often enough, most frequent first."""
        counts = Counter(word for line in lines for word in line.split())
        frequent = [(word, n) for word, n in counts.items() if n >= minimum]
        return cls([word for word, _ in sorted(frequent, key=lambda pair: (-pair[1], pair[0]))])

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, line: str) -> list[int]:
        """Turns words into ids, ended by EOS; an unknown word becomes UNK."""
        return [*(self._ids.get(word, UNK) for word in line.split()), EOS]

    def decode(self, ids: Iterable[int]) -> str:
        """Turns ids into words, up to the first EOS."""
        words = []
        for place in ids:
            if place == EOS:
                break
            words.append(self.words[place])
        return " ".join(words)

    def to_json(self) -> dict[str, Any]:
        """The words, without the special tokens."""
        return {"kind": self.kind, "words": self.words[len(SPECIALS) :]}
