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
from dataclasses import astuple, dataclass
from typing import Literal, get_args

import numpy as np

from latentheads.checks import check_as_many, check_choice
from latentheads.errors import shown

ScoreOfLinks = Literal["aer", "precision", "recall", "f1"]

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


def count_by_sentence(
    predicted: Sequence[Iterable[Link]],
    sure: Sequence[Iterable[Link]],
    possible: Sequence[Iterable[Link]] | None = None,
) -> list[LinkCounts]:
    """Counts the links of each sentence pair; the arguments are those of :func:`count_links`."""
    possible = sure if possible is None else possible
    for name, gold in (("sure", sure), ("possible", possible)):
        check_as_many(f"sentences of {name}", gold, "those of predicted", predicted)
    triples = ([*map(set, triple)] for triple in zip(predicted, sure, possible, strict=True))
    return [
        LinkCounts(
            found=len(links),
            sure=len(sure_links),
            found_sure=len(links & sure_links),
            found_possible=len(links & (sure_links | possible_links)),
        )
        for links, sure_links, possible_links in triples
    ]


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
    by_sentence = count_by_sentence(predicted, sure, possible)
    return LinkCounts(*map(sum, zip((0,) * 4, *map(astuple, by_sentence), strict=True)))


def score_interval(
    by_sentence: Sequence[LinkCounts], score: ScoreOfLinks = "aer"
) -> tuple[float, float]:
    """The 95 % interval of a score of links, by bootstrap over sentences.

    It is too narrow for fewer than 30 sentences. NaN of less than two sentences, where all
    resamples are equal, as without any error, and where one has no links.

    Args:
        by_sentence: The counts of each sentence pair, of :func:`count_by_sentence`.
        score: ``aer``, the alignment error rate, ``precision``, ``recall`` or ``f1``.
    """
    from latentheads.metrics import resampling  # slow to import

    check_choice("score", score, get_args(ScoreOfLinks))
    if len(by_sentence) < 2:
        return math.nan, math.nan
    counts = np.array([astuple(sentence) for sentence in by_sentence], dtype=float)
    indices = resampling.Resamples(len(counts), resampling.RESAMPLES, resampling.SEED)
    resampled = resampling.resample_counts(
        counts, lambda sums: getattr(LinkCounts(*sums), score), indices
    )
    if np.isclose(resampled[1], resampled[0]).all():  # no sentence differs, yet others may
        return math.nan, math.nan
    (estimate,) = resampling.estimate_systems([resampled], "", 0.0, 1.0)
    return estimate.low, estimate.high


def write_pharaoh(links: Iterable[Link]) -> str:
    """Formats the links of a sentence pair as ``0-0 1-2``, ordered by source index.

    >>> write_pharaoh({(1, 2), (0, 0)})
    '0-0 1-2'
    """
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def read_pharaoh(line: str) -> frozenset[Link]:
    """Parses a line in the Pharaoh format; see :func:`write_pharaoh`.

    A probability after a link, as ``align.py --probabilities`` writes it, is left out.

    >>> sorted(read_pharaoh("0-0 1-2:0.93"))
    [(0, 0), (1, 2)]
    """
    return frozenset(map(_read_link, line.split()))


def read_gold(line: str) -> tuple[frozenset[Link], frozenset[Link]]:
    """Parses the sure and the possible links of a line: ``0-0`` is sure, ``0?0`` or ``0p0`` not.

    >>> sure, possible = read_gold("0-0 1p2")
    >>> sure, possible
    (frozenset({(0, 0)}), frozenset({(1, 2)}))
    """
    words = line.split()
    possible = [word for word in words if re.fullmatch("[0-9]+[?p][0-9]+", word)]
    sure = [word for word in words if word not in possible]
    as_sure = (re.sub("[?p]", "-", word) for word in possible)
    return frozenset(map(_read_link, sure)), frozenset(map(_read_link, as_sure))


def _read_link(word: str) -> Link:
    match = re.fullmatch(r"([0-9]+)-([0-9]+)(:[0-9.]+)?", word)
    if match is None:
        raise ValueError(
            f"a link must be two indices with a dash between, as 0-1; got {shown(word)}"
        )
    return int(match[1]), int(match[2])
