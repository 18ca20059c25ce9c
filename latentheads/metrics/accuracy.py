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

from latentheads.metrics.recognition import make_normaliser, name_case
from latentheads.metrics.resampling import Counts, Metric, References


def accuracy(references: References) -> Metric | None:
    """Makes the share of exact matches, in percent; None if not requested."""
    if references.is_speech or not references.accuracy:
        return None
    return Metric(
        lambda lines: _count(lines, references, str.__eq__),
        lambda total: float(100 * total[0] / total[1]),
        lambda: f"{name_case(references)}|norm:nfc",
    )


def edit_distance(references: References) -> Metric | None:
    """Makes the mean number of edits to the reference; None if not requested."""
    if references.is_speech or not references.accuracy:
        return None

    def edits(output: str, reference: str) -> int:
        if references.tokenised:
            return count_edits(output.split(), reference.split())
        return count_edits(output, reference)

    unit = "none" if references.tokenised else "character"
    return Metric(
        lambda lines: _count(lines, references, edits),
        lambda total: float(total[0] / total[1]),
        lambda: f"{name_case(references)}|tok:{unit}|norm:nfc",
    )


def _count(
    lines: Sequence[str], references: References, compare: Callable[[str, str], float]
) -> Counts:
    """The value of a comparison, and 1, for every line."""
    normalise = make_normaliser(references.lowercase)
    pairs = zip(map(normalise, lines), map(normalise, references.lines), strict=True)
    return np.array([[compare(output, reference), 1.0] for output, reference in pairs])


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
