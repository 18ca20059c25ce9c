"""Characters: what a text is written with, one by one."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any

from latentheads.batch import EOS, SPECIALS, UNK
from latentheads.corpora.vocabulary import Vocabulary, ranked

__all__ = ["Characters"]


class Characters(Vocabulary):
    """The characters of a text, composed (NFC), spaces among them.

    Args:
        characters: The types, without the special tokens.
        lowercase: Whether lines are lower-cased first.
    """

    kind = "characters"

    def __init__(self, characters: Sequence[str], lowercase: bool = False) -> None:
        self.characters = tuple(characters)
        self.lowercase = lowercase
        self._ids = {each: len(SPECIALS) + place for place, each in enumerate(self.characters)}

    @classmethod
    def count(cls, lines: Iterable[str], lowercase: bool = False) -> Characters:
        """Collects the characters of some lines, most frequent first."""
        found = Counter(each for line in lines for each in _prepare(line, lowercase))
        return cls(ranked(found.items()), lowercase)

    def __len__(self) -> int:
        return len(SPECIALS) + len(self.characters)

    def encode(self, line: str) -> list[int]:
        """Turns characters into ids, ended by EOS; an unknown one becomes UNK."""
        return [*(self._ids.get(each, UNK) for each in _prepare(line, self.lowercase)), EOS]

    def decode(self, ids: Iterable[int]) -> str:
        """Turns ids into text, up to the first EOS; of a special token nothing is left but UNK."""
        known = takewhile(EOS.__ne__, ids)
        return "".join(self._spell(place) for place in known)

    def _spell(self, place: int) -> str:
        if place >= len(SPECIALS):
            return self.characters[place - len(SPECIALS)]
        return "\N{REPLACEMENT CHARACTER}" if place == UNK else ""

    def word_places(self, ids: Iterable[int]) -> list[int | None]:
        """Follows the text from character to character; a space belongs to no word."""
        found: list[int | None] = []
        place, inside = -1, False
        for token in takewhile(EOS.__ne__, ids):
            written = not self._spell(token).isspace() and token >= UNK
            place += written and not inside
            inside = written
            found.append(place if written else None)
        return found

    def to_json(self) -> dict[str, Any]:
        """The characters, without the special tokens."""
        known = list(self.characters)
        return {"kind": self.kind, "lowercase": self.lowercase, "characters": known}

    @classmethod
    def from_json(cls, value: dict[str, Any], characters: Sequence[str]) -> Characters:
        """Makes the vocabulary again.

        Args:
            value: What `to_json` gave.
            characters: Those in it, each known to be text.

        Raises:
            ValueError: It does not describe one.
        """
        lowercase = value.get("lowercase")
        if not isinstance(lowercase, bool) or any(len(each) != 1 for each in characters):
            raise ValueError("a vocabulary of characters says lowercase, true or false, and them")
        return cls(characters, lowercase)


def _prepare(line: str, lowercase: bool) -> str:
    composed = unicodedata.normalize("NFC", line)
    return composed.lower() if lowercase else composed
