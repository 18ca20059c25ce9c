"""Finite choices with a known probability in every domain, and how they are made.

The grammar is a program of independent choices: which rule, which word, which translation,
which order. A `Chooser` answers them when the program runs: `Draw` draws.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Generic, TypeVar

__all__ = ["DOMAINS", "Choice", "Chooser", "Draw", "log"]

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
