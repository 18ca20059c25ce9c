"""Batches of about equal numbers of tokens, of sentences of about equal length."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from latentheads.batch import Batch, check_batch
from latentheads.corpora.corpus import Part, check_part
from latentheads.corpora.rows import Rows
from latentheads.corpora.tasks import TaskIds

__all__ = ["TOKENS", "batches", "collate", "every_batch", "groups", "padding", "windows"]

TOKENS = 4096
"""Tokens of a batch that is only evaluated."""

POOL = 100
"""Sentences are sorted by length within a pool of this many batches, then batches are shuffled."""

Places = NDArray[np.int64]


def batches(part: Part, tokens: int, seed: int | None = None, epoch: int = 0) -> Iterator[Batch]:
    """Cuts one epoch of a part into batches.

    Args:
        part: The sentences.
        tokens: Most tokens a batch may hold on either side, padding included. A sentence longer
            than that makes a batch of its own.
        seed: Shuffles by this seed and the epoch; None sorts the whole part by length.
        epoch: Which epoch.
    """
    for group in groups(part, tokens, seed, epoch):
        yield collate(part, group)


def every_batch(given: Any, name: str) -> Iterator[Batch]:
    """The batches of a part, or those given; there is at least one.

    Args:
        given: A part of a corpus, or batches.
        name: What they are called, for the error.

    Raises:
        ValueError: It is neither, or there is none.
    """
    if isinstance(given, Part):
        given = batches(given, TOKENS)
    try:
        iter(given)
    except TypeError:
        raise ValueError(
            f"{name} must be a part of the corpus, as corpus.test, or batches, "
            f"got {type(given).__name__}"
        ) from None
    empty = True
    for batch in given:
        check_batch(batch, name)
        empty = False
        yield batch
    if empty:
        raise ValueError(f"{name} must be at least one batch, got none")


def groups(part: Part, tokens: int, seed: int | None = None, epoch: int = 0) -> list[Places]:
    """Says which sentences make each batch of an epoch: a function of its arguments alone."""
    check_part(part)
    if tokens < 1:
        raise ValueError(f"tokens must be positive, got {tokens}")
    lengths = part.lengths
    if seed is None:
        every = _apart(part, np.arange(len(part)))
        return [group for places in every for group in _cut(part, places, tokens)]
    rng = _generator(seed, epoch)
    chosen = _chosen(part, seed, epoch)
    rng.shuffle(chosen)
    mean = max(1, int(lengths.sum()) // max(1, len(lengths)))
    pool = max(1, POOL * tokens // mean)
    found = [
        group
        for places in _apart(part, chosen)
        for start in range(0, len(places), pool)
        for group in _cut(part, places[start : start + pool], tokens)
    ]
    return [found[place] for place in rng.permutation(len(found))]


def padding(part: Part, tokens: int, seed: int | None = None) -> float:
    """The share of an epoch's batches, both sides, that is padding.

    Args:
        part: The sentences.
        tokens: As in :func:`batches`.
        seed: As in :func:`batches`.
    """
    real = held = 0
    for group in groups(part, tokens, seed):
        for side in part.sides:
            lengths = side.lengths[group]
            real += int(lengths.sum())
            held += len(group) * int(lengths.max())
    return 1 - real / max(1, held)


def _chosen(part: Part, seed: int, epoch: int) -> Places:
    """The sentences of an epoch: every one, or as many of each task as its share says."""
    mixture = part.mixture
    if part.task is None or mixture is None or mixture.temperature == 1:
        return np.arange(len(part))
    sizes = np.bincount(part.task, minlength=len(mixture.tasks)).tolist()
    counts = enumerate(mixture.counts(sizes))
    return np.concatenate(
        [_stretch(part.places(task), count, seed, epoch, task) for task, count in counts if count]
    )


def _stretch(places: Places, count: int, seed: int, epoch: int, task: int) -> Places:
    """An epoch's sentences of a task: those that follow in an endless row of its permutations."""
    first, start = divmod(epoch * count, len(places))
    orders = -(-(start + count) // len(places))
    rounds = [_generator(seed, task, first + order).permutation(places) for order in range(orders)]
    return np.concatenate([places[:0], *rounds])[start : start + count]


def _apart(part: Part, places: Places) -> list[Places]:
    """The sentences by task where each batch is to be of one task; else all in one group."""
    if part.task is None or part.mixture is None or not part.mixture.one_task:
        return [places]
    own = part.task[places]
    return [places[own == task] for task in range(len(part.mixture.tasks))]


def _generator(*words: int) -> np.random.Generator:
    """Random numbers seeded by some whole numbers, the same wherever numpy has PCG64."""
    digest = hashlib.sha256(" ".join(map(str, words)).encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))


def _cut(part: Part, places: Places, tokens: int) -> list[Places]:
    """Sorts by length and cuts where one sentence more would exceed the budget.

    Among sentences whose longer sides are equal the order stays as it was drawn. To put those
    together whose shorter sides are alike, too, halves the padding; but sentences of one such shape
    are alike in more (one language of several, one construction), and training on batches of one
    kind each learns much less at the beginning.
    """
    lengths = part.lengths[places]
    order = np.argsort(lengths, kind="stable")
    ordered, sorted_lengths = places[order], lengths[order].tolist()
    cuts, start = [], 0
    for place, length in enumerate(sorted_lengths):
        if place > start and (place - start + 1) * length > tokens:
            cuts.append(place)
            start = place
    return [group for group in np.split(ordered, cuts) if len(group)]


def collate(part: Part, group: Sequence[int] | Places) -> Batch:
    """Pads some sentences of a part into a batch."""
    source = None if part.sources is None else torch.from_numpy(part.sources.pad(group))
    target = torch.from_numpy(part.targets.pad(group))
    before = torch.from_numpy(part.targets.before(group)) if part.block else None
    places = np.asarray(group)
    told: TaskIds = {}
    if part.task is not None and part.mixture is not None:
        told = part.mixture.told(part.task[places])
    batch = Batch(target, source, torch.as_tensor(places), len(part), before, **told)
    if part.frames is None:
        return batch
    counts = torch.from_numpy(part.frames.lengths[places])
    if part.tags is not None:
        batch = replace(batch, before=torch.from_numpy(part.tags[places].astype(np.int64)))
    return replace(batch, frames=torch.from_numpy(part.frames.pad(places)), frame_counts=counts)


def windows(part: Part, context: int, tokens: int) -> Iterator[Batch]:
    """Cuts a running text into overlapping windows that score each token once.

    The first window is a whole block. Every other one reads ``context`` tokens and scores those
    behind them, a block in all; the last one scores what is left.

    Args:
        part: The text.
        context: Least tokens before each scored one, but for those of the first block; with one
            token less than a block every token has a window of its own, with 0 the windows are
            the blocks.
        tokens: Most tokens a batch may hold.
    """
    rows, block = part.targets, part.block
    if not block or part.tokens < len(rows.tokens):
        raise ValueError("windows need a running text, cut into blocks, all of them or the first")
    if not 0 <= context < block:
        raise ValueError(f"context must lie in 0 ... {block - 1}, a block less one, got {context}")
    total = len(rows.tokens)
    ends = np.arange(min(block, total), total + 1, block - context, dtype=np.int64)
    groups = [ends[:1], *_of_size(ends[1:], max(1, tokens // block))]
    scored = [min(block, total), *[block - context] * (len(groups) - 1)]
    if ends[-1] < total:
        groups.append(np.array([total], dtype=np.int64))
        scored.append(total - int(ends[-1]))
    for stretch, new in zip(groups, scored, strict=True):
        window = Rows(rows.tokens, stretch, np.minimum(stretch, context + new))
        places = np.arange(len(stretch))
        yield Batch(
            torch.from_numpy(window.pad(places)),
            before=torch.from_numpy(window.before(places)),
            context=int(window.lengths[0]) - new,
        )


def _of_size(places: Places, size: int) -> list[Places]:
    return [places[start : start + size] for start in range(0, len(places), size)]
