"""Finite choices with a known probability in every domain, and the ways of making them.

The grammar is a program of independent choices: which rule, which word, which translation,
which order. A `Chooser` answers them when the program runs: one draws, one takes the likeliest
option, one replays given options so that all runs can be enumerated.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Any, Generic, TypeVar

__all__ = ["DOMAINS", "Choice", "Chooser", "Draw", "Likeliest", "Replay", "log"]

DOMAINS: tuple[str, ...] = ("news", "talk")

T = TypeVar("T")


def log(probability: float) -> float:
    """Natural logarithm with log 0 = -inf."""
    return math.log(probability) if probability > 0 else -math.inf


@dataclass(frozen=True, slots=True, eq=False)
class Choice(Generic[T]):
    """Options and their probabilities, one row a domain in the order of `DOMAINS`.

    Attributes:
        options: What can be chosen.
        probabilities: `probabilities[d][i]` is p(option i | domain d).
        cumulative: Running sums of each row, the last one exactly 1.
        logs: `logs[i][d]` is log p(option i | domain d).
    """

    options: tuple[T, ...]
    probabilities: tuple[tuple[float, ...], ...]
    cumulative: tuple[tuple[float, ...], ...]
    logs: tuple[tuple[float, ...], ...]

    @classmethod
    def weighted(cls, options: Iterable[T], weights: Iterable[Sequence[float]]) -> Choice[T]:
        """A choice from non-negative weights, one row a domain, each row normalised."""
        rows = tuple(tuple(weight / sum(row) for weight in row) for row in weights)
        sums = tuple((*tuple(accumulate(row))[:-1], 1.0) for row in rows)
        logs = tuple(tuple(map(log, column)) for column in zip(*rows, strict=True))
        return cls(tuple(options), rows, sums, logs)


class Chooser(ABC):
    """What answers a choice with one of its options."""

    __slots__ = ()

    @abstractmethod
    def __call__(self, choice: Choice[T], /) -> T:
        """The option chosen."""


class Draw(Chooser):
    """Draws every option in one domain and sums its log-probability in every domain.

    Attributes:
        logs: log p(all options drawn so far | d), one entry a domain.
    """

    __slots__ = ("domain", "logs", "random")

    def __init__(self, domain: int, generator: Random) -> None:
        self.domain = domain
        self.random = generator.random
        self.logs = [0.0] * len(DOMAINS)

    def __call__(self, choice: Choice[T], /) -> T:
        """Draw an option; a choice of one option uses no randomness."""
        options = choice.options
        if len(options) == 1:
            return options[0]
        index = bisect_right(choice.cumulative[self.domain], self.random())
        for domain, value in enumerate(choice.logs[index]):
            self.logs[domain] += value
        return options[index]


class Likeliest(Chooser):
    """Takes the most probable option in one domain, the first of equals."""

    __slots__ = ("domain",)

    def __init__(self, domain: int) -> None:
        self.domain = domain

    def __call__(self, choice: Choice[T], /) -> T:
        """The argmax."""
        row = choice.probabilities[self.domain]
        return choice.options[row.index(max(row))]


class Replay(Chooser):
    """Repeats given option numbers, then takes first options, and writes all of them down.

    Attributes:
        made: The choices that had an alternative, with the number of the option taken.
    """

    __slots__ = ("made", "prefix")

    def __init__(self, prefix: tuple[int, ...] = ()) -> None:
        self.prefix = prefix
        self.made: list[tuple[Choice[Any], int]] = []

    def __call__(self, choice: Choice[T], /) -> T:
        """The option whose turn it is."""
        if len(choice.options) == 1:
            return choice.options[0]
        place = len(self.made)
        index = self.prefix[place] if place < len(self.prefix) else 0
        self.made.append((choice, index))
        return choice.options[index]

    def probability(self, domain: int) -> float:
        """p(all options taken | domain)."""
        factors = (choice.probabilities[domain][index] for choice, index in self.made)
        return math.prod(factors, start=1.0)

    def deviations(self) -> Iterator[tuple[int, ...]]:
        """Prefixes that leave this run after its own prefix; together they reach every run."""
        taken = tuple(index for _, index in self.made)
        for place in range(len(self.prefix), len(taken)):
            for index in range(1, len(self.made[place][0].options)):
                yield (*taken[:place], index)
