r"""Word alignments: how well links meet gold links, and the Pharaoh format.

A link is a pair of places from 0, of a source word and of a target word. With the links found
:math:`A`, the sure ones :math:`S` and the possible ones :math:`P \supseteq S` of Och and Ney 2003,
https://aclanthology.org/J03-1002, all counted over a corpus,

.. math:: \mathrm{precision} = \frac{|A \cap P|}{|A|}, \qquad
          \mathrm{recall} = \frac{|A \cap S|}{|S|}, \qquad
          \mathrm{AER} = 1 - \frac{|A \cap S| + |A \cap P|}{|A| + |S|}.

Where every possible link is sure the error rate is one less F1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

__all__ = ["Link", "LinkCounts", "Links", "count_links", "read_pharaoh", "write_pharaoh"]

Link = tuple[int, int]
"""A source word's place, and a target word's."""

Links = AbstractSet[Link]
"""The links of a sentence pair."""


@dataclass(frozen=True)
class LinkCounts:
    """Links of a corpus, found and gold.

    Attributes:
        found: Links that were found.
        sure: Gold links that must be found.
        found_sure: Sure links that were found.
        found_possible: Found links that are possible.
    """

    found: int
    sure: int
    found_sure: int
    found_possible: int

    @property
    def precision(self) -> float:
        """Share of the found links that are possible; NaN where none was found."""
        return _share(self.found_possible, self.found)

    @property
    def recall(self) -> float:
        """Share of the sure links that were found; NaN where there are none."""
        return _share(self.found_sure, self.sure)

    @property
    def f1(self) -> float:
        """Harmonic mean of both; 0 where no found link is gold, NaN where there is nothing."""
        precision, recall = self.precision, self.recall
        if not self.found_possible or not self.found_sure:
            return 0.0 if self.found + self.sure else math.nan
        return 2 * precision * recall / (precision + recall)

    @property
    def aer(self) -> float:
        """The alignment error rate; NaN where there is nothing."""
        return 1 - _share(self.found_sure + self.found_possible, self.found + self.sure)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else math.nan


def count_links(
    found: Sequence[Links], sure: Sequence[Links], possible: Sequence[Links] | None = None
) -> LinkCounts:
    """Counts the links of a corpus, a set a sentence pair.

    Args:
        found: The links that are judged.
        sure: Gold links that must be found.
        possible: Gold links that may be found, beside the sure ones; None: the sure ones alone.

    Raises:
        ValueError: They are not of as many sentence pairs.
    """
    possible = sure if possible is None else possible
    for name, gold in (("sure", sure), ("possible", possible)):
        if len(gold) != len(found):
            raise ValueError(f"{name} must be of {len(found)} sentences, as found; got {len(gold)}")
    triples = list(zip(found, sure, possible, strict=True))
    return LinkCounts(
        found=sum(len(mine) for mine, _, _ in triples),
        sure=sum(len(must) for _, must, _ in triples),
        found_sure=sum(len(mine & must) for mine, must, _ in triples),
        found_possible=sum(len(mine & (must | may)) for mine, must, may in triples),
    )


def write_pharaoh(links: Iterable[Link]) -> str:
    """Writes the links of a sentence pair as ``0-0 1-2``, by source place; nothing if none.

    >>> write_pharaoh({(1, 2), (0, 0)})
    '0-0 1-2'
    """
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def read_pharaoh(line: str) -> frozenset[Link]:
    """Reads what :func:`write_pharaoh` writes.

    Raises:
        ValueError: A word of the line is no link.
    """
    return frozenset(map(_read_link, line.split()))


def _read_link(word: str) -> Link:
    if not re.fullmatch(r"[0-9]+-[0-9]+", word):
        raise ValueError(f"a link must be two places with a dash between, as 0-1; got {word!r}")
    source, target = word.split("-")
    return int(source), int(target)
