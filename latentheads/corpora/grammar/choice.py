"""Categorical choices with a known probability in every domain.

The grammar is a probabilistic program of independent choices: which rule, which word, which
translation, which order. A `Chooser` makes them when the program runs; `Sampler` samples them.
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

DOMAINS: tuple[str, ...] = ("news", "talk")

T = TypeVar("T")


def safe_log(probability: float) -> float:
    """Natural logarithm with log 0 = -inf."""
    return math.log(probability) if probability > 0 else -math.inf


@dataclass(frozen=True, slots=True, eq=False)
class Choice(Generic[T]):
    """A categorical distribution over options for each domain, in the order of `DOMAINS`.

    Attributes:
        options: The support.
        probabilities: `probabilities[d][i]` is p(option i | domain d).
        cumulative: Cumulative sums of each row, the last one exactly 1.
        log_probs: `log_probs[i][d]` is log p(option i | domain d).
    """

    options: tuple[T, ...]
    probabilities: tuple[tuple[float, ...], ...]
    cumulative: tuple[tuple[float, ...], ...]
    log_probs: tuple[tuple[float, ...], ...]

    @classmethod
    def weighted(cls, options: Iterable[T], weights: Iterable[Sequence[float]]) -> Choice[T]:
        """Makes a choice from non-negative weights, one row for each domain, and normalises."""
        rows = tuple(tuple(weight / sum(row) for weight in row) for row in weights)
        sums = tuple((*tuple(accumulate(row))[:-1], 1.0) for row in rows)
        log_probs = tuple(tuple(map(safe_log, column)) for column in zip(*rows, strict=True))
        return cls(tuple(options), rows, sums, log_probs)


class Chooser(ABC):
    """Selects one of the options of every choice."""

    __slots__ = ()

    @abstractmethod
    def __call__(self, choice: Choice[T], /) -> T:
        """Returns the selected option."""


class Sampler(Chooser):
    """Samples every option in one domain and accumulates its log-probability in every domain.

    Attributes:
        log_probs: log p(all options sampled so far | d), one entry for each domain d.
    """

    __slots__ = ("domain", "log_probs", "random")

    def __init__(self, domain: int, generator: Random) -> None:
        self.domain = domain
        self.random = generator.random
        self.log_probs = [0.0] * len(DOMAINS)

    def __call__(self, choice: Choice[T], /) -> T:
        """Samples an option; a choice of one option uses no random number."""
        options = choice.options
        if len(options) == 1:
            return options[0]
        index = bisect_right(choice.cumulative[self.domain], self.random())
        for domain, log_prob in enumerate(choice.log_probs[index]):
            self.log_probs[domain] += log_prob
        return options[index]
