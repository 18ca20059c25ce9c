"""Vocabularies: the units of text and their ids, the special tokens first."""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import count, takewhile
from typing import Any, Literal

import numpy as np

from latentheads.batch import EOS, SPECIALS, UNK
from latentheads.corpora.rows import Rows

__all__ = ["Tagged", "Unit", "Vocabulary", "Words", "ranked"]

Unit = Literal["word", "subword"]
"""The units of a running text."""


class Vocabulary(ABC):
    """One side of a corpus: turns a line of text into ids and back.

    Attributes:
        lowercase: Whether lines are lower-cased first.
        tokenised: Whether lines are words with a space between.
    """

    kind: str
    lowercase: bool = False
    tokenised: bool = False

    @abstractmethod
    def __len__(self) -> int:
        """Number of types, special tokens included."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self):,} types)"

    @abstractmethod
    def encode(self, line: str) -> list[int]:
        """Turns a line into ids, ended by EOS; what is unknown becomes UNK."""

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """Turns ids into text, up to the first EOS."""

    @abstractmethod
    def word_places(self, ids: Iterable[int]) -> list[int | None]:
        """Tells which word of the decoded text each token belongs to, up to the first EOS.

        Words are what ``str.split`` cuts the text into. A token that cuts across words belongs to
        the first; one that is no word at all, such as a space or a tag, to None.
        """

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Everything that makes the same vocabulary again, with its ``kind``."""

    def encode_all(self, lines: Iterable[str]) -> Rows:
        """Encodes every line."""
        return Rows.of(self.encode(line) for line in lines)


class Words(Vocabulary):
    """Words with a space between.

    In a text ``<unk>`` is the unknown word itself; the other special tokens are words like any.

    Args:
        words: The types, without the special tokens.
        lowercase: Whether lines are lower-cased first.
    """

    kind = "words"
    tokenised = True

    def __init__(self, words: Sequence[str], lowercase: bool = False) -> None:
        self.words = [*SPECIALS, *words]
        self.lowercase = lowercase
        self._ids = {word: UNK + place for place, word in enumerate(self.words[UNK:])}

    @classmethod
    def count(cls, lines: Iterable[str], minimum: int = 1) -> Words:
        """Collects the words that occur often enough, most frequent first."""
        counts = Counter(word for line in lines for word in line.split())
        del counts[SPECIALS[UNK]]
        return cls(ranked(counts.items(), minimum))

    @classmethod
    def learn(
        cls, lines: Iterable[str], minimum: int = 1, lowercase: bool = False
    ) -> tuple[Words, Rows]:
        """Collects the words of a text as `count` does and encodes it, in one reading."""
        places: defaultdict[str, int] = defaultdict(count(len(SPECIALS)).__next__)
        places[SPECIALS[UNK]] = UNK
        read = (_prepare(line, lowercase).split() for line in lines)
        found = _encoded([*map(places.__getitem__, words), EOS] for words in read)
        del places[SPECIALS[UNK]]
        times = np.bincount(found.tokens, minlength=len(SPECIALS) + len(places)).tolist()
        counts = ((word, times[place]) for word, place in places.items())
        words = cls(ranked(counts, minimum), lowercase)
        order = np.array(
            [*range(len(SPECIALS)), *(words._ids.get(word, UNK) for word in places)], np.int32
        )
        return words, Rows(order[found.tokens], found.ends)

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, line: str) -> list[int]:
        """Turns words into ids, ended by EOS; an unknown word becomes UNK."""
        words = _prepare(line, self.lowercase).split()
        return [*(self._ids.get(word, UNK) for word in words), EOS]

    def encode_all(self, lines: Iterable[str]) -> Rows:
        """Encodes every line."""
        return _encoded(map(self.encode, lines))

    def decode(self, ids: Iterable[int]) -> str:
        """Turns ids into words, up to the first EOS."""
        words = []
        for place in ids:
            if place == EOS:
                break
            words.append(self.words[place])
        return " ".join(words)

    def word_places(self, ids: Iterable[int]) -> list[int | None]:
        """Every token is a word."""
        return [place for place, _ in enumerate(takewhile(EOS.__ne__, ids))]

    def to_json(self) -> dict[str, Any]:
        """The words, without the special tokens; lowercase where it is so."""
        said = {"lowercase": True} if self.lowercase else {}
        return {"kind": self.kind, **said, "words": self.words[len(SPECIALS) :]}


class Tagged(Vocabulary):
    """A vocabulary with tags behind its types: tokens that stand for no text.

    Args:
        plain: The vocabulary of the text.
        tags: Names, such as the languages that a sentence may be translated into.
    """

    kind = "tagged"

    def __init__(self, plain: Vocabulary, tags: Sequence[str]) -> None:
        self.plain = plain
        self.lowercase, self.tokenised = plain.lowercase, plain.tokenised
        self.tags = tuple(tags)

    def __len__(self) -> int:
        return len(self.plain) + len(self.tags)

    def tag(self, name: str) -> int:
        """The id of a tag."""
        return len(self.plain) + self.tags.index(name)

    def encode(self, line: str) -> list[int]:
        """Turns a line into ids, ended by EOS, without a tag."""
        return self.plain.encode(line)

    def encode_all(self, lines: Iterable[str]) -> Rows:
        """Encodes every line, without tags."""
        return self.plain.encode_all(lines)

    def decode(self, ids: Iterable[int]) -> str:
        """Turns ids into text, up to the first EOS; of a tag nothing is left."""
        return self.plain.decode(place for place in ids if place < len(self.plain))

    def word_places(self, ids: Iterable[int]) -> list[int | None]:
        """As those of the text; a tag belongs to no word."""
        rows = list(takewhile(EOS.__ne__, ids))
        own = iter(self.plain.word_places(place for place in rows if place < len(self.plain)))
        return [next(own) if place < len(self.plain) else None for place in rows]

    def to_json(self) -> dict[str, Any]:
        """The vocabulary of the text, and the tags."""
        return {"kind": self.kind, "tags": list(self.tags), "plain": self.plain.to_json()}


def _prepare(line: str, lowercase: bool) -> str:
    return line.lower() if lowercase else line


def ranked(counts: Iterable[tuple[str, int]], minimum: int = 1) -> list[str]:
    """The types that occur often enough, most frequent first."""
    frequent = [(name, times) for name, times in counts if times >= minimum]
    return [name for name, _ in sorted(frequent, key=lambda pair: (-pair[1], pair[0]))]


def _encoded(lines: Iterable[list[int]]) -> Rows:
    """Packs lines of ids without keeping an object for any of them."""
    tokens, lengths = array("i"), array("q")
    for line in lines:
        tokens.extend(line)
        lengths.append(len(line))
    return Rows(np.array(tokens, np.int32), np.cumsum(np.array(lengths, np.int64)))
