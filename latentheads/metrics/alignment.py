r"""Word alignments: precision, recall, AER against gold links, and the Pharaoh format.

A link is a pair of indices from 0, of a source word and of a target word. With the predicted links
:math:`A`, the sure gold links :math:`S` and the possible ones :math:`P \supseteq S` (Och and Ney
2003, https://aclanthology.org/J03-1002), all counted over a corpus,

.. math:: \mathrm{precision} = \frac{|A \cap P|}{|A|}, \qquad
          \mathrm{recall} = \frac{|A \cap S|}{|S|}, \qquad
          \mathrm{AER} = 1 - \frac{|A \cap S| + |A \cap P|}{|A| + |S|}.

Where every possible link is sure, AER = 1 - F1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from latentheads.checks import check_as_many
from latentheads.errors import shown

Link = tuple[int, int]
"""The index of a source word, and that of a target word."""

Links = AbstractSet[Link]
"""The links of a sentence pair."""


@dataclass(frozen=True)
class LinkCounts:
    """Counts of predicted and gold links in a corpus.

    Attributes:
        found: Predicted links.
        sure: Sure gold links.
        found_sure: Predicted links that are sure.
        found_possible: Predicted links that are possible.
    """

    found: int
    sure: int
    found_sure: int
    found_possible: int

    @property
    def precision(self) -> float:
        """The share of predicted links that are possible; NaN if none was predicted."""
        return _ratio(self.found_possible, self.found)

    @property
    def recall(self) -> float:
        """The share of sure links that were predicted; NaN if there are none."""
        return _ratio(self.found_sure, self.sure)

    @property
    def f1(self) -> float:
        """The harmonic mean of both; 0 if no sure link was predicted, NaN if there are none."""
        precision, recall = self.precision, self.recall
        if not self.found_sure:
            return 0.0 if self.sure else math.nan
        return 2 * precision * recall / (precision + recall)

    @property
    def aer(self) -> float:
        """The alignment error rate; NaN without any links."""
        return 1 - _ratio(self.found_sure + self.found_possible, self.found + self.sure)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def count_links(
    predicted: Sequence[Iterable[Link]],
    sure: Sequence[Iterable[Link]],
    possible: Sequence[Iterable[Link]] | None = None,
) -> LinkCounts:
    """Counts the links of a corpus.

    Args:
        predicted: The predicted links of each sentence pair.
        sure: The sure gold links of each.
        possible: Further gold links that are possible; None: only the sure ones.
    """
    possible = sure if possible is None else possible
    for name, gold in (("sure", sure), ("possible", possible)):
        check_as_many(f"sentences of {name}", gold, "those of predicted", predicted)
    triples = [[*map(set, triple)] for triple in zip(predicted, sure, possible, strict=True)]
    return LinkCounts(
        found=sum(len(links) for links, _, _ in triples),
        sure=sum(len(sure_links) for _, sure_links, _ in triples),
        found_sure=sum(len(links & sure_links) for links, sure_links, _ in triples),
        found_possible=sum(
            len(links & (sure_links | possible_links))
            for links, sure_links, possible_links in triples
        ),
    )


def write_pharaoh(links: Iterable[Link]) -> str:
    """Formats the links of a sentence pair as ``0-0 1-2``, ordered by source index.

    >>> write_pharaoh({(1, 2), (0, 0)})
    '0-0 1-2'
    """
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def read_pharaoh(line: str) -> frozenset[Link]:
    """Parses a line in the Pharaoh format; see :func:`write_pharaoh`."""
    return frozenset(map(_read_link, line.split()))


def _read_link(word: str) -> Link:
    if not re.fullmatch(r"[0-9]+-[0-9]+", word):
        raise ValueError(
            f"a link must be two indices with a dash between, as 0-1; got {shown(word)}"
        )
    source, target = word.split("-")
    return int(source), int(target)
