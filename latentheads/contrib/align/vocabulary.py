"""Vocabularies of whole words, and the classes of words that share their first letters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import torch
from jaxtyping import Int
from torch import Tensor

Words = Sequence[str]
"""The words of a sentence."""


@dataclass(frozen=True)
class Vocabulary:
    """Words and their ids, in the order of their first occurrence.

    Attributes:
        words: The distinct words.
    """

    words: tuple[str, ...]
    _ids: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_ids", {word: index for index, word in enumerate(self.words)})

    def __len__(self) -> int:
        return len(self.words)

    def new_words(self, sentences: Iterable[Words]) -> dict[str, int]:
        """The words of some sentences that are not in it, with ids that follow its own."""
        new: dict[str, int] = {}
        for sentence in sentences:
            for word in sentence:
                if word not in self._ids:
                    new.setdefault(word, len(self._ids) + len(new))
        return new

    def encode(self, sentence: Words, new: Mapping[str, int] = MappingProxyType({})) -> list[int]:
        """The id of every word of a sentence, which may be one of those of :meth:`new_words`."""
        return [self._ids[word] if word in self._ids else new[word] for word in sentence]


@dataclass(frozen=True)
class PrefixClasses:
    """Classes of words with the same first letters.

    Attributes:
        letters: How many letters they share.
        of_word: The class of each word of a vocabulary.
        ids: The class of each prefix.
    """

    letters: int
    of_word: Int[Tensor, " word"]
    ids: dict[str, int] = field(repr=False, compare=False)

    @classmethod
    def of(cls, vocabulary: Vocabulary, letters: int) -> PrefixClasses:
        """The classes of the words of a vocabulary."""
        ids: dict[str, int] = {}
        words = [ids.setdefault(word[:letters], len(ids)) for word in vocabulary.words]
        return cls(letters, torch.tensor(words, dtype=torch.int64), ids)

    def shorten(
        self, classes: Int[Tensor, " item"], shorter: PrefixClasses
    ) -> Int[Tensor, " item"]:
        """The class of a shorter prefix of each of some classes."""
        of_class = torch.tensor(
            [shorter.ids[prefix[: shorter.letters]] for prefix in self.ids], dtype=torch.int64
        )
        return of_class[classes]

    def with_words(self, words: Iterable[str]) -> Int[Tensor, " word"]:
        """The class of each word, and of some new words after them: -1 if it is a new class."""
        new = [self.ids.get(word[: self.letters], -1) for word in words]
        return torch.cat([self.of_word, torch.tensor(new, dtype=torch.int64)])
