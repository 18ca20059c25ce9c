"""Training, validation and test that share no text."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

__all__ = ["PERCENT", "draw_place", "fold_text", "split_by_text"]

PERCENT = {"test": 10, "valid": 10}
"""Of the groups of equal texts, those of each part; the others are for training."""

Item = TypeVar("Item")


def split_by_text(
    items: Iterable[Item], texts_of: Callable[[Item], Iterable[str]]
) -> dict[str, list[Item]]:
    """Splits what has texts into parts, the same everywhere.

    What shares a text, in whatever language and but for case and punctuation, is a group, and so is
    what shares one with a member of it. A group is in the part that a hash of its first text says.

    Args:
        items: What has texts, one or several.
        texts_of: The texts of an item.
    """
    items = list(items)
    folded = [[fold_text(text) for text in texts_of(item)] for item in items]
    first = _group_texts(folded)
    parts: dict[str, list[Item]] = {"train": [], "valid": [], "test": []}
    for item, texts in zip(items, folded, strict=True):
        parts[_choose_part(first[texts[0]])].append(item)
    return parts


def fold_text(text: str) -> str:
    """A text without case and punctuation; the text itself where nothing else is in it."""
    return "".join(filter(str.isalnum, text.casefold())) or text


def draw_place(name: str, number: int) -> int:
    """One of so many, by a hash of a name: the same in every version of Python."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % number


def _group_texts(folded: Sequence[Sequence[str]]) -> dict[str, str]:
    """The first text, in the order of letters, of each text's group."""
    above: dict[str, str] = {}

    def find(text: str) -> str:
        while (parent := above.setdefault(text, text)) != text:
            above[text] = above[parent]  # the next search is shorter
            text = parent
        return text

    for texts in folded:
        roots = sorted(map(find, texts))
        for root in roots[1:]:
            above[root] = roots[0]
    return {text: find(text) for text in above}


def _choose_part(name: str) -> str:
    place = draw_place(name, 100)
    for part, percent in PERCENT.items():
        if place < percent:
            return part
        place -= percent
    return "train"
