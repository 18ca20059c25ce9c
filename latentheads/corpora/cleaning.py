"""Which training pairs are left out: the empty, the long, the unlike in length."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from latentheads.corpora.text import Pair

__all__ = ["USUAL", "Cleaning", "Counts", "clean"]


@dataclass(frozen=True)
class Cleaning:
    """The rules by which training pairs are kept; a pair with an empty side never is.

    Lengths are counted in words between white space. Held-out parts are never cleaned.

    Attributes:
        max_length: Most words of either side; 0 for any number.
        max_ratio: Most words of the longer side for one word of the shorter; 0 for any. Off by
            default: among captions of ten words it drops many good pairs.
        max_word: Most characters of a word; 0 for any. Text without spaces is one word, whatever
            its length.
    """

    max_length: int = 175
    max_ratio: float = 0.0
    max_word: int = 0

    def __post_init__(self) -> None:
        if self.max_length < 0:
            raise ValueError(f"max_length must be at least 0 (0: no limit), got {self.max_length}")
        if self.max_ratio and not self.max_ratio >= 1:
            raise ValueError(f"max_ratio must be at least 1, or 0 for none; got {self.max_ratio}")

    def fault(self, source: str, target: str) -> str | None:
        """The reason for leaving a pair out, a field of `Counts`; None keeps it."""
        sides = source.split(), target.split()
        shorter, longer = sorted(map(len, sides))
        if not shorter:
            return "empty"
        if self.max_length and longer > self.max_length:
            return "too_long"
        if self.max_word and any(len(word) > self.max_word for side in sides for word in side):
            return "too_long"
        if self.max_ratio and longer > self.max_ratio * shorter:
            return "ratio"
        return None


USUAL = Cleaning()
"""The default rules."""


@dataclass(frozen=True)
class Counts:
    """How many pairs were kept and why the others were not, each counted once.

    Attributes:
        kept: Pairs to train on.
        empty: A side had no word.
        too_long: A side had too many words, or a word too many characters.
        ratio: The sides were too unlike in length.
        first_long: The number, from 1, of the first pair that was too long; 0 where none was.
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


def clean(pairs: Iterable[Pair], cleaning: Cleaning = USUAL) -> tuple[list[Pair], Counts]:
    """Keeps the pairs that are fit for training, in their order, unchanged."""
    kept: list[Pair] = []
    faults = {"empty": 0, "too_long": 0, "ratio": 0}
    first_long = 0
    for number, pair in enumerate(pairs, 1):
        fault = cleaning.fault(*pair)
        if fault is None:
            kept.append(pair)
        else:
            faults[fault] += 1
            if fault == "too_long":
                first_long = first_long or number
    return kept, Counts(kept=len(kept), **faults, first_long=first_long)
