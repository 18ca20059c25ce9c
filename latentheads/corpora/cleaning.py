"""Cleaning: drop training pairs that are empty, too long, or too different in length."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from latentheads.checks import check_least
from latentheads.corpora.text import SentencePair

TOKEN_CHARACTERS = 32
"""Most characters of a word, for each token that a line may have; text has fewer. A line with a
longer word is left out before subwords are learned: every merge reads the whole of a word."""


@dataclass(frozen=True)
class Cleaning:
    """The rules by which training pairs are kept; a pair with an empty side is always dropped.

    Lengths are numbers of words separated by white space. Held-out parts are never cleaned.

    Attributes:
        max_length: Maximum number of words of either side; 0: no limit.
        max_ratio: Maximum ratio of the longer side's length to the shorter's; 0: no limit. Off by
            default, since it drops many good pairs of captions of ten words.
        max_word: Maximum number of characters of a word; 0: no limit. Text without spaces is one
            word.
    """

    max_length: int = 175
    max_ratio: float = 0.0
    max_word: int = 0

    def __post_init__(self) -> None:
        check_least(vars(self), max_length=0, max_word=0)
        if self.max_ratio and not self.max_ratio >= 1:
            raise ValueError(f"max_ratio must be at least 1, or 0 for none; got {self.max_ratio}")

    def rejection_reason(self, source: str, target: str) -> str | None:
        """Why a pair is dropped, a field of `Counts`; None if it is kept."""
        sides = source.split(), target.split()
        shorter, longer = sorted(map(len, sides))
        if not shorter:
            return "empty"
        if self.max_length and longer > self.max_length:
            return "too_long"
        may_be_long = 0 < self.max_word < max(len(source), len(target))
        if may_be_long and any(len(word) > self.max_word for side in sides for word in side):
            return "too_long"
        if self.max_ratio and longer > self.max_ratio * shorter:
            return "ratio"
        return None


DEFAULT_CLEANING = Cleaning()
"""The default rules."""


@dataclass(frozen=True)
class Counts:
    """How many pairs are kept, and how many are dropped for which reason.

    Attributes:
        kept: Pairs to train on.
        empty: Pairs with a side without a word.
        too_long: Pairs with too many words on a side, or too many characters in a word.
        ratio: Pairs whose sides differ too much in length.
        first_long: The number, from 1, of the first pair that is too long; 0 if there is none.
    """

    kept: int = 0
    empty: int = 0
    too_long: int = 0
    ratio: int = 0
    first_long: int = 0

    def __str__(self) -> str:
        total = self.kept + self.empty + self.too_long + self.ratio
        first = f" (the first is line {self.first_long})" if self.first_long else ""
        return (
            f"{self.kept:,} of {total:,} training pairs kept; left out: {self.empty:,} empty on a "
            f"side, {self.too_long:,} too long{first}, {self.ratio:,} too unlike in length"
        )


def clean(
    pairs: Iterable[SentencePair], cleaning: Cleaning = DEFAULT_CLEANING
) -> tuple[list[SentencePair], Counts]:
    """Drops the pairs that break a rule; the others keep their order."""
    kept: list[SentencePair] = []
    rejected = {"empty": 0, "too_long": 0, "ratio": 0}
    first_long = 0
    for number, pair in enumerate(pairs, 1):
        reason = cleaning.rejection_reason(*pair)
        if reason is None:
            kept.append(pair)
        else:
            rejected[reason] += 1
            if reason == "too_long":
                first_long = first_long or number
    return kept, Counts(kept=len(kept), **rejected, first_long=first_long)
