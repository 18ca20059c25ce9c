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
from latentheads.metrics.resampling import Counts, Metric

__all__ = ["count_edits", "make_accuracy"]


def make_accuracy(
    references: Sequence[str], tokenised: bool = False, lowercase: bool = False
) -> dict[str, Metric]:
    """Makes ``accuracy``, in percent, and ``edit_distance``, a mean.

    Args:
        references: The right answers.
        tokenised: Whether the lines are tokenised already, tokens with spaces between.
        lowercase: Whether case counts for nothing; the signatures say so.
    """
    plain = make_plain(lowercase)

    def count(lines: Sequence[str], judge: Callable[[str, str], float]) -> Counts:
        pairs = zip(map(plain, lines), map(plain, references), strict=True)
        return np.array([[judge(mine, right), 1.0] for mine, right in pairs])

    def edits(mine: str, right: str) -> int:
        return count_edits(mine.split(), right.split()) if tokenised else count_edits(mine, right)

    case = f"case:{'lc' if lowercase else 'mixed'}"
    unit = "none" if tokenised else "character"
    return {
        "accuracy": Metric(
            lambda lines: count(lines, str.__eq__),
            lambda total: float(100 * total[0] / total[1]),
            lambda: f"{case}|norm:nfc",
            most=100.0,
        ),
        "edit_distance": Metric(
            lambda lines: count(lines, edits),
            lambda total: float(total[0] / total[1]),
            lambda: f"{case}|tok:{unit}|norm:nfc",
        ),
    }


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
