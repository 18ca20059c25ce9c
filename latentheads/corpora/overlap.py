"""How many held-out sentences stand in training too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latentheads.corpora.rows import Rows

__all__ = ["Overlap", "count_shared"]

FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""An odd number without a pattern, by which marks are mixed."""


class Overlap(NamedTuple):
    """How many held-out sentences stand in training too, token by token, with their sources.

    Attributes:
        valid: Of the part for validation.
        test: Of the part for test.
    """

    valid: int
    test: int


def count_shared(train: Sequence[Rows], part: Sequence[Rows]) -> int:
    """Counts the sentences of a part that stand in training too; empty ones do not count.

    Args:
        train: The sides of training: targets, and sources where there are any.
        part: The same sides of the part.
    """
    likely = np.flatnonzero(np.isin(_mark_rows(train), _mark_rows(part), kind="sort"))
    seen = {_read_key(train, place) for place in likely.tolist()}
    full = np.flatnonzero(np.max([side.lengths for side in part], axis=0) > 1)
    return sum(_read_key(part, place) in seen for place in full.tolist())


def _read_key(sides: Sequence[Rows], place: int) -> tuple[bytes, ...]:
    """All tokens of a sentence."""
    return tuple(side[place].tobytes() for side in sides)


def _mark_rows(sides: Sequence[Rows]) -> NDArray[np.uint64]:
    """A number for each sentence, made of its length and four of its tokens.

    The same sentence has the same number. So most of training is told apart from all held-out
    sentences without a Python object for each of its own.
    """
    marks = np.zeros(len(sides[0]), np.uint64)
    for side in sides:
        marks = marks * FACTOR + side.lengths.astype(np.uint64)
        for quarter in range(4):
            places = side.starts + side.lengths * quarter // 4
            marks = marks * FACTOR + side.tokens[places].astype(np.uint64)
    return marks
