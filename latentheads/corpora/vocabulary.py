"""Vocabularies: tokens and their ids, the special tokens first."""

from __future__ import annotations

import pkgutil
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import numpy as np

from latentheads.batch import EOS, SPECIALS, UNK
from latentheads.checks import check_choice
from latentheads.console import show_progress
from latentheads.corpora.frames import Frames
from latentheads.corpora.rows import Rows

KINDS = {
    "words": "latentheads.corpora.vocabulary:Words",
    "bpe": "latentheads.corpora.subwords:Subwords",
    "tagged": "latentheads.corpora.vocabulary:Tagged",
    "characters": "latentheads.corpora.characters:Characters",
    "positions": "latentheads.contrib.speech.vocabulary:Positions",
}
"""The class of every kind of vocabulary; a kind is loaded when it is first needed."""


class Vocabulary(ABC):
    """The vocabulary of one side of a corpus: encodes a line of text as token ids, and decodes.

    Attributes:
        lowercase: Whether lines are lower-cased first.
        tokenised: Whether lines are words separated by spaces.
        bins: Coefficients of a frame, where its tokens mark positions of speech; 0: it is of text.
    """

    kind: str
    lowercase: bool = False
    tokenised: bool = False
    bins: int = 0

    @property
    def is_text(self) -> bool:
        """Whether its tokens are text: otherwise they mark positions in time."""
        return not self.bins

    @abstractmethod
    def __len__(self) -> int:
        """The vocabulary size, special tokens included."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(vocab_size={len(self):,})"

    @abstractmethod
    def encode(self, line: str) -> list[int]:
        """Encodes a line as token ids that end with EOS; unknown tokens become UNK."""

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """Decodes token ids up to the first EOS."""

    def token_text(self, token: int) -> str:
        """The text of one token, as the label of an axis; by default it is decoded."""
        return self.decode([token])

    @abstractmethod
    def word_ids(self, ids: Iterable[int]) -> list[int | None]:
        """The index of the word of each token in the decoded text, up to the first EOS.

        Words are those of ``str.split``. A token across several words belongs to the first; a
        token that is part of no word, such as a space or a tag, has None.
        """

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """A value from which the vocabulary can be restored, with its ``kind``."""

    @classmethod
    @abstractmethod
    def from_json(cls, value: dict[str, Any]) -> Vocabulary:
        """Restores the vocabulary from the value of `to_json`."""

    def encode_all(self, lines: Iterable[str]) -> Rows:
        """Encodes every line."""
        return Rows.of(map(self.encode, show_progress(lines, "encoding", "line")))

    def encode_inputs(
        self, inputs: Sequence[str | Path], max_seconds: float = 0.0
    ) -> tuple[Rows, Frames | None]:
        """The tokens of what a model is given, and the frames of what is no text.

        Args:
            inputs: Lines; of a source that is no text, files.
            max_seconds: Longest file; 0: any.
        """
        return self.encode_all(map(str, inputs)), None


def before_end(ids: Iterable[int]) -> Iterator[int]:
    """Token ids before the first EOS, of numpy and torch too, as numbers of Python."""
    return takewhile(EOS.__ne__, map(int, ids))


def vocabulary_from_json(value: object) -> Vocabulary:
    """Restores a vocabulary of any kind from the value of its `to_json`; executes no code of it."""
    if not isinstance(value, dict):
        raise ValueError(f"a vocabulary is a JSON object, got {type(value).__name__}")
    kind = value.get("kind")
    check_choice("a vocabulary's kind", kind, KINDS)
    restored: Vocabulary = pkgutil.resolve_name(KINDS[str(kind)]).from_json(value)
    return restored


class Words(Vocabulary):
    """Words separated by spaces.

    The text ``<unk>`` is encoded as UNK; the texts of other special tokens are ordinary words.

    Args:
        words: The vocabulary, without the special tokens.
        lowercase: Whether lines are lower-cased first.
    """

    kind = "words"
    tokenised = True

    def __init__(self, words: Sequence[str], lowercase: bool = False) -> None:
        self.words = [*SPECIALS, *words]
        self.lowercase = lowercase
        self._ids = {word: UNK + index for index, word in enumerate(self.words[UNK:])}

    @classmethod
    def count(cls, lines: Iterable[str], minimum: int = 1) -> Words:
        """Collects the words with at least ``minimum`` occurrences, most frequent first."""
        counts = Counter(word for line in lines for word in line.split())
        del counts[SPECIALS[UNK]]
        return cls(rank_by_frequency(counts.items(), minimum))

    @classmethod
    def learn(
        cls, lines: Iterable[str], minimum: int = 1, lowercase: bool = False
    ) -> tuple[Words, Rows]:
        """Collects the words of a text as `count` does and encodes it, in one pass."""
        first_ids: defaultdict[str, int] = defaultdict(count(len(SPECIALS)).__next__)
        first_ids[SPECIALS[UNK]] = UNK
        shown = show_progress(lines, "encoding", "line")
        split_lines = (_prepare(line, lowercase).split() for line in shown)
        rows = Rows.of([*map(first_ids.__getitem__, words), EOS] for words in split_lines)
        del first_ids[SPECIALS[UNK]]
        id_counts = np.bincount(rows.tokens, minlength=len(SPECIALS) + len(first_ids)).tolist()
        word_counts = ((word, id_counts[first_id]) for word, first_id in first_ids.items())
        words = cls(rank_by_frequency(word_counts, minimum), lowercase)
        new_ids = np.array(
            [*range(len(SPECIALS)), *(words._ids.get(word, UNK) for word in first_ids)], np.int32
        )
        return words, Rows(new_ids[rows.tokens], rows.ends)

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, line: str) -> list[int]:
        words = _prepare(line, self.lowercase).split()
        return [*(self._ids.get(word, UNK) for word in words), EOS]

    def decode(self, ids: Iterable[int]) -> str:
        return " ".join(self.words[token_id] for token_id in before_end(ids))

    def word_ids(self, ids: Iterable[int]) -> list[int | None]:
        return [position for position, _ in enumerate(before_end(ids))]

    def to_json(self) -> dict[str, Any]:
        """The words, without the special tokens; ``lowercase`` only if it is true."""
        options = {"lowercase": True} if self.lowercase else {}
        return {"kind": self.kind, **options, "words": self.words[len(SPECIALS) :]}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Words:
        return cls(value["words"], value.get("lowercase", False))


class Tagged(Vocabulary):
    """A vocabulary with additional tags, such as target languages: tokens that are not text."""

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
        """Encodes a line as token ids that end with EOS, without a tag."""
        return self.plain.encode(line)

    def encode_all(self, lines: Iterable[str]) -> Rows:
        """Encodes every line, without tags."""
        return self.plain.encode_all(lines)

    def decode(self, ids: Iterable[int]) -> str:
        """Decodes token ids up to the first EOS; tags are skipped."""
        return self.plain.decode(token_id for token_id in ids if token_id < len(self.plain))

    def token_text(self, token: int) -> str:
        tag = token - len(self.plain)
        return self.plain.token_text(token) if tag < 0 else self.tags[tag]

    def word_ids(self, ids: Iterable[int]) -> list[int | None]:
        token_ids = list(before_end(ids))
        text_word_ids = iter(
            self.plain.word_ids(token_id for token_id in token_ids if token_id < len(self.plain))
        )
        return [
            next(text_word_ids) if token_id < len(self.plain) else None for token_id in token_ids
        ]

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "tags": list(self.tags), "plain": self.plain.to_json()}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Tagged:
        return cls(vocabulary_from_json(value["plain"]), value["tags"])


def language_tag(language: str) -> str:
    """The tag of a target language."""
    return f"<2{language}>"


def tag_of(vocabulary: Vocabulary, language: str) -> int:
    """The id of the tag of a target language."""
    assert isinstance(vocabulary, Tagged)
    return vocabulary.tag(language_tag(language))


def _prepare(line: str, lowercase: bool) -> str:
    return line.lower() if lowercase else line


def rank_by_frequency(counts: Iterable[tuple[str, int]], minimum: int = 1) -> list[str]:
    """The tokens with at least ``minimum`` occurrences, most frequent first."""
    frequent = [(token, count) for token, count in counts if count >= minimum]
    return [token for token, _ in sorted(frequent, key=lambda pair: (-pair[1], pair[0]))]
