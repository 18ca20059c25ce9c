"""Words and their ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from latentheads.batch import EOS, SPECIALS, UNK

__all__ = ["Vocabulary"]


class Vocabulary:
    """The types of one side of a corpus; the first ids are the special tokens.

    Args:
        words: The types, without the special tokens.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = [*SPECIALS, *words]
        self._ids = {word: place for place, word in enumerate(self.words)}

    @classmethod
    def count(cls, sentences: Iterable[Sequence[str]], minimum: int = 1) -> Vocabulary:
        """Collects the words that occur often enough, most frequent first."""
        counts = Counter(word for sentence in sentences for word in sentence)
        frequent = [(word, n) for word, n in counts.items() if n >= minimum]
        return cls([word for word, _ in sorted(frequent, key=lambda pair: (-pair[1], pair[0]))])

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, sentence: Iterable[str]) -> list[int]:
        """Turns words into ids, ended by EOS; an unknown word becomes UNK."""
        return [*(self._ids.get(word, UNK) for word in sentence), EOS]

    def decode(self, ids: Iterable[int]) -> str:
        """Turns ids into text, up to the first EOS."""
        words = []
        for place in ids:
            if place == EOS:
                break
            words.append(self.words[place])
        return " ".join(words)
