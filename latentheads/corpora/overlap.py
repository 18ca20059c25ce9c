"""How many held-out sentences also occur in training (train-test overlap)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latentheads.corpora.rows import Rows

HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""The odd multiplier of Fibonacci hashing, 2^64 over the golden ratio."""


class Overlap(NamedTuple):
    """How many held-out sentences, with their sources, also occur in training, token by token."""

    valid: int
    test: int


def count_shared(train: Sequence[Rows], part: Sequence[Rows]) -> int:
    """Counts the sentences of a part that also occur in training; empty ones do not count."""
    candidates = np.flatnonzero(np.isin(_hash_rows(train), _hash_rows(part), kind="sort"))
    train_keys = {_sentence_key(train, index) for index in candidates.tolist()}
    nonempty = np.flatnonzero(np.max([side.lengths for side in part], axis=0) > 1)
    return sum(_sentence_key(part, index) in train_keys for index in nonempty.tolist())


def _sentence_key(sides: Sequence[Rows], index: int) -> tuple[bytes, ...]:
    """All tokens of a sentence as a hashable key."""
    return tuple(side[index].tobytes() for side in sides)


def _hash_rows(sides: Sequence[Rows]) -> NDArray[np.uint64]:
    """A hash of each sentence, from its length and four of its tokens.

    It rules out most training sentences without a Python object for each of them.
    """
    hashes = np.zeros(len(sides[0]), np.uint64)
    for side in sides:
        hashes = hashes * HASH_FACTOR + side.lengths.astype(np.uint64)
        for quarter in range(4):
            positions = side.starts + side.lengths * quarter // 4
            hashes = hashes * HASH_FACTOR + side.tokens[positions].astype(np.uint64)
    return hashes
