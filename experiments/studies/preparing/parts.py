"""Training, validation and test that share no text."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import TypeVar

PERCENT = {"test": 10, "valid": 10}
"""The share of the groups of equal texts in each part; the others are for training."""

Item = TypeVar("Item")


def split_by_text(
    items: Iterable[Item], texts_of: Callable[[Item], Iterable[str]]
) -> dict[str, list[Item]]:
    """Splits what has texts into parts, the same everywhere.

    What shares a text, in whatever language and but for case and punctuation, is a group, and so is
    what shares one with a member of it. A group is in the part that a hash of its first text says.
    """
    from scipy.cluster.hierarchy import DisjointSet  # slow to import

    items = list(items)
    folded = [[fold_text(text) for text in texts_of(item)] for item in items]
    groups = DisjointSet()
    for first, *others in folded:
        groups.add(first)
        for text in others:
            groups.add(text)
            groups.merge(first, text)
    parts: dict[str, list[Item]] = {"train": [], "valid": [], "test": []}
    for item, texts in zip(items, folded, strict=True):
        parts[_choose_part(min(groups.subset(texts[0])))].append(item)
    return parts


def fold_text(text: str) -> str:
    """A text without case and punctuation; the text itself where nothing else is in it."""
    return "".join(filter(str.isalnum, text.casefold())) or text


def sample_position(name: str, number: int) -> int:
    """A place below a number, by a hash of a name: the same in every version of Python."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % number


def _choose_part(name: str) -> str:
    place = sample_position(name, 100)
    for part, percent in PERCENT.items():
        if place < percent:
            return part
        place -= percent
    return "train"
