r"""How many answers are right to the letter, and how many edits the others are away.

With answers :math:`\hat y_n` to N questions and the right ones :math:`y_n`,

.. math:: \mathrm{accuracy} = \frac{100}{N} \#\{n : \hat y_n = y_n\}, \qquad
          \mathrm{edit\ distance} = \frac 1 N \sum_n \mathrm{lev}(\hat y_n, y_n)

as the shared tasks on inflection count them (Cotterell et al. 2017,
https://aclanthology.org/K17-2001): lev is the fewest tokens that are put in, taken out or replaced.
Of text whose lines are no tokens it counts characters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from latentheads.metrics.recognition import make_plain
from latentheads.metrics.resampling import Counts, Metric, References

__all__ = ["accuracy", "count_edits", "edit_distance"]


def accuracy(references: References) -> Metric | None:
    """Makes the share that is right to the letter, in percent; None where it is not asked for."""
    if references.is_speech or not references.accuracy:
        return None
    return Metric(
        lambda lines: _count(lines, references, str.__eq__),
        lambda total: float(100 * total[0] / total[1]),
        lambda: f"{_case(references)}|norm:nfc",
        most=100.0,
    )


def edit_distance(references: References) -> Metric | None:
    """Makes the mean number of edits to the right answer; None where it is not asked for."""
    if references.is_speech or not references.accuracy:
        return None

    def edits(mine: str, right: str) -> int:
        if references.tokenised:
            return count_edits(mine.split(), right.split())
        return count_edits(mine, right)

    unit = "none" if references.tokenised else "character"
    return Metric(
        lambda lines: _count(lines, references, edits),
        lambda total: float(total[0] / total[1]),
        lambda: f"{_case(references)}|tok:{unit}|norm:nfc",
    )


def _count(
    lines: Sequence[str], references: References, judge: Callable[[str, str], float]
) -> Counts:
    """What a pair of lines counts, and 1, for every line."""
    plain = make_plain(references.lowercase)
    pairs = zip(map(plain, lines), map(plain, references.lines), strict=True)
    return np.array([[judge(mine, right), 1.0] for mine, right in pairs])


def _case(references: References) -> str:
    return f"case:{'lc' if references.lowercase else 'mixed'}"


def count_edits(mine: Sequence[str], right: Sequence[str]) -> int:
    """The fewest tokens that are put in, taken out or replaced to make one answer the other.

    >>> count_edits("kitten", "sitting")
    3
    """
    places = np.arange(len(right) + 1)
    ids = {token: place for place, token in enumerate(dict.fromkeys([*mine, *right]))}
    wanted = np.array([ids[token] for token in right], dtype=np.int64)
    row = places
    for number, token in enumerate(mine, 1):
        without = np.minimum(row[1:] + 1, row[:-1] + (wanted != ids[token]))
        # an insertion costs one a place: a running minimum, once the places are subtracted
        row = np.minimum.accumulate(np.concatenate([[number], without]) - places) + places
    return int(row[-1])
