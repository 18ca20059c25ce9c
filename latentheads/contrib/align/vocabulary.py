"""Vocabularies of whole words, and the classes of words that share their first letters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

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

    def extend(self, sentences: Iterable[Words]) -> Vocabulary:
        """The vocabulary with the new words of some sentences after its own."""
        words = dict.fromkeys(self.words)
        for sentence in sentences:
            words.update(dict.fromkeys(sentence))
        return Vocabulary(tuple(words))

    def encode(self, sentence: Words) -> list[int]:
        """The id of every word of a sentence."""
        return [self._ids[word] for word in sentence]

    def matches(self, other: Vocabulary) -> Int[Tensor, " word"]:
        """The id that each word has in another vocabulary; -1 for a word that is not in it."""
        return torch.tensor([other._ids.get(word, -1) for word in self.words], dtype=torch.int64)

    def prefix_classes(self, letters: int) -> Int[Tensor, " word"]:
        """The class of each word: those with the same first letters share one."""
        classes: dict[str, int] = {}
        return torch.tensor(
            [classes.setdefault(word[:letters], len(classes)) for word in self.words],
            dtype=torch.int64,
        )
