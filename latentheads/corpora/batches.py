"""Batches of about equal numbers of tokens, of sentences of about equal length."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TypeVar

from latentheads.batch import Batch
from latentheads.corpora.corpus import Part

__all__ = ["batches", "forever"]

POOL = 100
"""Sentences are sorted by length within a pool of this many batches, then batches are shuffled."""

T = TypeVar("T")


def batches(part: Part, tokens: int, seed: int | None = None, epoch: int = 0) -> Iterator[Batch]:
    """Cuts one epoch of a part into batches.

    Args:
        part: The sentences.
        tokens: Most tokens a batch may hold on either side, padding included. A sentence longer
            than that makes a batch of its own.
        seed: Shuffles by this seed and the epoch; None keeps the part's order of lengths.
        epoch: Which epoch.
    """
    if tokens < 1:
        raise ValueError(f"tokens must be positive, got {tokens}")
    places = list(range(len(part)))
    rng = None if seed is None else random.Random(f"{seed} {epoch}")
    if rng is not None:
        rng.shuffle(places)
    lengths = [
        max(len(target), len(part.sources[place]) if part.sources else 0)
        for place, target in enumerate(part.targets)
    ]
    groups = _groups(places, lengths, tokens, whole=rng is None)
    if rng is not None:
        rng.shuffle(groups)
    for group in groups:
        yield _collate(part, group)


def _groups(places: list[int], lengths: list[int], tokens: int, whole: bool) -> list[list[int]]:
    mean = max(1, sum(lengths) // max(1, len(lengths)))
    pool = len(places) if whole else max(1, POOL * tokens // mean)
    groups: list[list[int]] = []
    for start in range(0, len(places), max(1, pool)):
        group: list[int] = []
        for place in sorted(places[start : start + pool], key=lambda place: lengths[place]):
            if group and (len(group) + 1) * lengths[place] > tokens:
                groups.append(group)
                group = []
            group.append(place)
        groups.append(group)
    return groups


def _collate(part: Part, group: list[int]) -> Batch:
    sources = [part.sources[place] for place in group] if part.sources else None
    return Batch.of([part.targets[place] for place in group], sources, group, len(part))


def forever(part: Part, tokens: int, seed: int) -> Iterator[Batch]:
    """Epoch after epoch, each shuffled anew."""
    epoch = 0
    while True:
        yield from batches(part, tokens, seed, epoch)
        epoch += 1
