r"""Exact-match accuracy and mean edit distance.

With outputs :math:`\hat y_n` for N inputs and the references :math:`y_n`,

.. math:: \mathrm{accuracy} = \frac{100}{N} \#\{n : \hat y_n = y_n\}, \qquad
          \mathrm{edit\ distance} = \frac 1 N \sum_n \mathrm{lev}(\hat y_n, y_n)

as in the shared tasks on inflection (Cotterell et al. 2017, https://aclanthology.org/K17-2001).
lev is the Levenshtein distance in tokens, or in characters where lines are not tokenised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from latentheads.metrics.recognition import make_normaliser
from latentheads.metrics.resampling import Counts, Metric

__all__ = ["count_edits", "make_accuracy"]


def make_accuracy(
    references: Sequence[str], tokenised: bool = False, lowercase: bool = False
) -> dict[str, Metric]:
    """Makes the metrics ``accuracy``, in percent, and ``edit_distance``, a mean.

    Args:
        references: The references.
        tokenised: Whether lines are tokenised already, with spaces between tokens.
        lowercase: Whether case is ignored; the signatures record it.
    """
    normalise = make_normaliser(lowercase)

    def count(lines: Sequence[str], compare: Callable[[str, str], float]) -> Counts:
        pairs = zip(map(normalise, lines), map(normalise, references), strict=True)
        return np.array([[compare(output, reference), 1.0] for output, reference in pairs])

    def edits(output: str, reference: str) -> int:
        return (
            count_edits(output.split(), reference.split())
            if tokenised
            else count_edits(output, reference)
        )

    case = f"case:{'lc' if lowercase else 'mixed'}"
    unit = "none" if tokenised else "character"
    return {
        "accuracy": Metric(
            lambda lines: count(lines, str.__eq__),
            lambda total: float(100 * total[0] / total[1]),
            lambda: f"{case}|norm:nfc",
            maximum=100.0,
        ),
        "edit_distance": Metric(
            lambda lines: count(lines, edits),
            lambda total: float(total[0] / total[1]),
            lambda: f"{case}|tok:{unit}|norm:nfc",
        ),
    }


def count_edits(output: Sequence[str], reference: Sequence[str]) -> int:
    """Computes the Levenshtein distance: insertions, deletions and substitutions.

    >>> count_edits("kitten", "sitting")
    3
    """
    positions = np.arange(len(reference) + 1)
    ids = {token: index for index, token in enumerate(dict.fromkeys([*output, *reference]))}
    reference_ids = np.array([ids[token] for token in reference], dtype=np.int64)
    row = positions
    for position, token in enumerate(output, 1):
        without_insertion = np.minimum(row[1:] + 1, row[:-1] + (reference_ids != ids[token]))
        # each insertion costs 1, so subtracting the position turns the scan into a running minimum
        row = (
            np.minimum.accumulate(np.concatenate([[position], without_insertion]) - positions)
            + positions
        )
    return int(row[-1])
