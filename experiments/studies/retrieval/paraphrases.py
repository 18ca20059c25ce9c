"""Pairs of paraphrases, from sentences that share a translation.

Two English sentences that one German sentence translates say the same thing in other words. All
sentences that are joined by such links are one cluster, so that no sentence of a cluster is a wrong
answer to another: at most one pair is taken of each.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from latentheads.checks import check_as_many
from latentheads.corpora.text import read_lines

LEAST_WORDS = 4
"""Shorter sentences are greetings and orders, of which too many mean the same."""

MOST_SHARED = 0.7
"""The share of its words that a pair may have in common: above it, one sentence is spelt twice."""


@dataclass(frozen=True)
class Pairs:
    """Sentences to ask with, and the paraphrase of each."""

    questions: list[str]
    answers: list[str]

    def __len__(self) -> int:
        return len(self.questions)

    def split(self, first: int) -> tuple[Pairs, Pairs]:
        """The first pairs, and all others."""
        return (
            Pairs(self.questions[:first], self.answers[:first]),
            Pairs(self.questions[first:], self.answers[first:]),
        )


def read_pairs(english: str | Path, german: str | Path, seed: int = 0) -> Pairs:
    """The pairs of two files of translations, line by line, in an order of chance."""
    one, other = read_lines(english), read_lines(german)
    check_as_many("lines of english", one, "those of german", other)
    return find_pairs(one, other, seed)


def find_pairs(english: Sequence[str], german: Sequence[str], seed: int = 0) -> Pairs:
    """At most one pair of each cluster of English sentences that share translations.

    It is the first sentence that is sampled, and the first other one in other words; a cluster in
    which that one has none is left out.
    """
    chance = random.Random(seed)
    found = []
    for cluster in _join(english, german):
        usable = [each for each in cluster if len(_words_of(each)) >= LEAST_WORDS]
        chance.shuffle(usable)
        pair = next(
            ((one, two) for one in usable[:1] for two in usable[1:] if _differ(one, two)), None
        )
        if pair is not None:
            found.append(pair)
    chance.shuffle(found)
    return Pairs([one for one, _ in found], [two for _, two in found])


def _join(english: Sequence[str], german: Sequence[str]) -> Iterable[list[str]]:
    """Clusters of sentences that translations join, in the order of their first sentences."""
    from scipy.cluster.hierarchy import DisjointSet  # slow to import

    groups = DisjointSet()
    for one, other in zip(english, german, strict=True):
        if one.strip() and other.strip():
            pair = ("en", one.strip()), ("de", other.strip())
            groups.add(pair[0])
            groups.add(pair[1])
            groups.merge(*pair)
    clusters: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in dict.fromkeys(each.strip() for each in english):
        if ("en", one) in groups:
            clusters[groups[("en", one)]].append(one)
    return clusters.values()


def _words_of(sentence: str) -> set[str]:
    return set(re.findall(r"\w+", sentence.lower()))


def _differ(one: str, two: str) -> bool:
    """Whether a pair is in other words."""
    first, second = _words_of(one), _words_of(two)
    return len(first & second) <= MOST_SHARED * len(first | second)
