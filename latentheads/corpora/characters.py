"""A vocabulary of characters."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from latentheads.batch import EOS, SPECIALS, UNK
from latentheads.corpora.vocabulary import Vocabulary, before_end, rank_by_frequency


class Characters(Vocabulary):
    """The characters of a text in normal form NFC, spaces included.

    Args:
        characters: The vocabulary, without the special tokens.
        lowercase: Whether lines are lower-cased first.
    """

    kind = "characters"

    def __init__(self, characters: Sequence[str], lowercase: bool = False) -> None:
        self.characters = tuple(characters)
        self.lowercase = lowercase
        self._ids = {
            character: len(SPECIALS) + index for index, character in enumerate(self.characters)
        }

    @classmethod
    def count(cls, lines: Iterable[str], lowercase: bool = False) -> Characters:
        """Collects the characters of some lines, most frequent first."""
        counts = Counter(character for line in lines for character in _prepare(line, lowercase))
        return cls(rank_by_frequency(counts.items()), lowercase)

    def __len__(self) -> int:
        return len(SPECIALS) + len(self.characters)

    def encode(self, line: str) -> list[int]:
        """Encodes a line; unknown white space is a space, since it separates words."""
        space = self._ids.get(" ", UNK)
        return [
            *(
                self._ids.get(character, space if character.isspace() else UNK)
                for character in _prepare(line, self.lowercase)
            ),
            EOS,
        ]

    def decode(self, ids: Iterable[int]) -> str:
        """Decodes token ids up to the first EOS; special tokens other than UNK are skipped."""
        token_ids = before_end(ids)
        return "".join(self._spell(token_id) for token_id in token_ids)

    def _spell(self, token_id: int) -> str:
        if token_id >= len(SPECIALS):
            return self.characters[token_id - len(SPECIALS)]
        return "\N{REPLACEMENT CHARACTER}" if token_id == UNK else ""

    def word_ids(self, ids: Iterable[int]) -> list[int | None]:
        word_ids: list[int | None] = []
        word, in_word = -1, False
        for token in before_end(ids):
            text = self._spell(token)
            is_text = bool(text) and not text.isspace()
            word += is_text and not in_word
            in_word = is_text if text else in_word  # what is skipped separates nothing
            word_ids.append(word if is_text else None)
        return word_ids

    def to_json(self) -> dict[str, Any]:
        characters = list(self.characters)
        return {"kind": self.kind, "lowercase": self.lowercase, "characters": characters}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Characters:
        return cls(value["characters"], value["lowercase"])


def _prepare(line: str, lowercase: bool) -> str:
    composed = unicodedata.normalize("NFC", line)
    return composed.lower() if lowercase else composed
