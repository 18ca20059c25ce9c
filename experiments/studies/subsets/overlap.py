"""How much sets of heads agree."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from itertools import combinations
from typing import Any


def mean_jaccard(sets: Sequence[AbstractSet[Any]]) -> float:
    """Mean overlap of pairs of sets: intersection over union; of two empty sets 1."""
    overlaps = [len(a & b) / len(a | b) if a | b else 1.0 for a, b in combinations(sets, 2)]
    return sum(overlaps) / len(overlaps)
