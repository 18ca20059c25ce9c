"""Cases of a test that takes several values: every two of them meet, or each of them comes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations, product
from typing import Any

import pytest

__all__ = ["cover_pairs", "in_turn", "pairwise"]


def cover_pairs(columns: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Few rows in which every two values of different columns stand side by side."""
    crossings = list(product(*(range(len(column)) for column in columns)))
    missing = {pair for row in crossings for pair in _pairs(row)}
    rows = []
    while missing:
        row = max(crossings, key=lambda crossing: len(missing & _pairs(crossing)))
        missing -= _pairs(row)
        rows.append(tuple(column[index] for column, index in zip(columns, row, strict=True)))
    return rows


def _pairs(row: tuple[int, ...]) -> set[Any]:
    return set(combinations(enumerate(row), 2))


def pairwise(**values: Iterable[Any]) -> pytest.MarkDecorator:
    """Gives a test its arguments, by name, in rows that :func:`cover_pairs`."""
    return pytest.mark.parametrize(tuple(values), cover_pairs([*map(list, values.values())]))


def in_turn(**values: Iterable[Any]) -> pytest.MarkDecorator:
    """Gives a test its arguments, by name, in as few rows as show every value.

    For arguments of which none knows of another: a search and what draws the heads below it.
    """
    columns = [[*column] for column in values.values()]
    rows = range(max(map(len, columns)))
    cases = [tuple(column[row % len(column)] for column in columns) for row in rows]
    return pytest.mark.parametrize(tuple(values), cases)
