"""Cases of a test that takes several values: every two of them meet, not every crossing of all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, product
from typing import Any

import pytest

__all__ = ["cover_pairs", "pairwise"]


def cover_pairs(columns: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Few rows in which every two values of different columns stand side by side."""
    crossings = list(product(*(range(len(column)) for column in columns)))
    missing = {pair for row in crossings for pair in _pairs(row)}
    rows = []
    while missing:
        row = max(crossings, key=lambda each: len(missing & _pairs(each)))
        missing -= _pairs(row)
        rows.append(tuple(column[place] for column, place in zip(columns, row, strict=True)))
    return rows


def _pairs(row: tuple[int, ...]) -> set[Any]:
    return set(combinations(enumerate(row), 2))


def pairwise(**values: Iterable[Any]) -> pytest.MarkDecorator:
    """Gives a test its arguments, by name, in rows that :func:`cover_pairs`."""
    return pytest.mark.parametrize(tuple(values), cover_pairs([*map(list, values.values())]))
