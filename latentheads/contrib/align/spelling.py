"""Words of two languages that are spelt alike: names, numbers, words of one origin."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int, UInt8
from numpy import ndarray
from torch import Tensor

PREFIX = 4
"""First letters that make words alike."""

COMMON = 0.65
"""Share of the letters of the longer word, in their order, that makes words alike."""

LONGEST = 24
"""Letters of a word that are compared."""

CHUNK = 200_000
"""Pairs of words that are compared at once, which bounds memory."""


@dataclass(frozen=True)
class Spelling:
    """Which entries of a translation table are spelt alike.

    Attributes:
        alike: Whether the words of each entry are.
        source: The number of words that are spelt like each source word.
        target: The number of words that are spelt like each target word.
    """

    alike: Bool[Tensor, " entry"]
    source: Int[Tensor, " source"]
    target: Int[Tensor, " target"]

    def reverse(self) -> Spelling:
        """The same with source and target exchanged."""
        return Spelling(self.alike, self.target, self.source)


def make_spelling(
    source: Sequence[str],
    target: Sequence[str],
    pair_source: Int[Tensor, " entry"],
    pair_target: Int[Tensor, " entry"],
) -> Spelling:
    """Compares the words of each entry of a translation table.

    Args:
        source: The source vocabulary.
        target: The target vocabulary.
        pair_source: The source word of every entry.
        pair_target: The target word of every entry.
    """
    left, right = _Letters(source), _Letters(target)
    alike = torch.zeros(len(pair_source), dtype=torch.bool)
    for begin in range(0, len(pair_source), 20 * CHUNK):
        part = slice(begin, begin + 20 * CHUNK)
        first, second = pair_source[part].numpy(), pair_target[part].numpy()
        alike[part] = torch.from_numpy(_compare(left, right, first, second))
    return Spelling(
        alike,
        torch.bincount(pair_source[alike], minlength=len(source)).int(),
        torch.bincount(pair_target[alike], minlength=len(target)).int(),
    )


def normalise(word: str) -> str:
    """A word without diacritics; a number without . and ,."""
    plain = word
    if not word.isascii():
        decomposed = unicodedata.normalize("NFD", word)
        plain = "".join(c for c in decomposed if not unicodedata.combining(c))
    if ("." in plain or "," in plain) and any(c.isdigit() for c in plain):
        return plain.replace(".", "").replace(",", "")
    return plain


class _Letters:
    """The letters of words as numbers."""

    def __init__(self, words: Sequence[str]) -> None:
        plain = [normalise(word) for word in words]
        codes = np.zeros((len(words), LONGEST), np.int32)
        for row, word in enumerate(plain):
            codes[row, : len(word)] = [*map(ord, word[:LONGEST])]
        self.codes = codes
        self.lengths = np.array([min(len(word), LONGEST) for word in plain], np.int64)
        self.is_text = np.array([word.isalpha() for word in plain], bool)


def _compare(
    left: _Letters, right: _Letters, first: Int[ndarray, " pair"], second: Int[ndarray, " pair"]
) -> Bool[ndarray, " pair"]:
    """Whether the words of each pair are spelt alike."""
    alike = np.zeros(len(first), bool)
    begin_alike = left.codes[first, 0] == right.codes[second, 0]
    candidates = np.flatnonzero(begin_alike & (left.lengths[first] > 0))
    for begin in range(0, len(candidates), CHUNK):
        part = candidates[begin : begin + CHUNK]
        a, b = left.codes[first[part]], right.codes[second[part]]
        same = (a == b).all(1)
        is_text = left.is_text[first[part]] & right.is_text[second[part]]
        lengths = left.lengths[first[part]], right.lengths[second[part]]
        begins = (a[:, :PREFIX] == b[:, :PREFIX]).all(1)  # shorter words are the same then
        longest = np.maximum(*lengths)
        close = np.flatnonzero(
            is_text & ~same & ~begins & (np.minimum(*lengths) >= COMMON * longest)
        )
        alike[part] = same | (is_text & begins)
        common = _common_letters(a[close], b[close])
        alike[part[close]] |= common >= COMMON * longest[close]
    return alike


def _common_letters(
    first: Int[ndarray, "pair letter"], second: Int[ndarray, "pair letter"]
) -> UInt8[ndarray, " pair"]:
    """The length of the longest common subsequence of the letters of each pair."""
    best = np.zeros((len(first), LONGEST + 1), np.uint8)
    for letter in range(LONGEST):
        column = first[:, letter, None]
        taken = best[:, :-1] + ((column == second) & (column > 0))
        best[:, 1:] = np.maximum.accumulate(np.maximum(best[:, 1:], taken), 1)
    return best[:, -1]
