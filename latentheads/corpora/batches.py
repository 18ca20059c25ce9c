"""Batches with a token budget, made of sentences of similar length."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from latentheads.batch import Batch, check_batch
from latentheads.checks import check_least, check_seed
from latentheads.corpora.part import Part, check_part
from latentheads.corpora.rows import Rows
from latentheads.corpora.tasks import TaskIds

TOKENS = 4096
"""Maximum number of tokens of a batch for evaluation."""

POOL = 100
"""Sentences are sorted by length within a pool of this many batches; batches are shuffled."""

Indices = NDArray[np.int64]


def batches(
    part: Part, tokens: int = TOKENS, seed: int = 0, epoch: int = 0, *, shuffle: bool = True
) -> Iterator[Batch]:
    """Splits one epoch of a part into batches of sentences of similar length, in random order.

    Args:
        part: The sentences.
        tokens: Maximum number of tokens of a batch on either side, padding included. A longer
            sentence is a batch of its own.
        seed: Seed, with the epoch, of the order: the same seed and epoch give the same batches.
        epoch: The epoch.
        shuffle: Whether sentences and batches are shuffled, for training. Otherwise the whole part
            is sorted by length, which needs the least padding; ``batch.index`` has each sentence's
            index in the part.

    Example:
        >>> epochs = [list(lh.data.batches(corpus.train, 64, seed=3, epoch=n)) for n in (0, 0, 1)]
        >>> orders = [[i for b in epoch for i in b.index.tolist()] for epoch in epochs]
        >>> orders[0] == orders[1], orders[0] == orders[2]
        (True, False)
    """
    if shuffle:
        check_seed(seed)
    for group in batch_indices(part, tokens, seed if shuffle else None, epoch):
        yield collate(part, group)


def iterate_batches(parts: Any, name: str) -> Iterator[Batch]:
    """Iterates over the batches of a part, or over the given ones; there is at least one."""
    if isinstance(parts, Part):
        parts = batches(parts, TOKENS, shuffle=False)
    try:
        iter(parts)
    except TypeError:
        raise ValueError(
            f"{name} must be a part of the corpus, as corpus.test, or batches, "
            f"got {type(parts).__name__}"
        ) from None
    empty = True
    for batch in parts:
        check_batch(batch, name)
        empty = False
        yield batch
    if empty:
        raise ValueError(f"{name} must be at least one batch, got none")


def batch_indices(
    part: Part, tokens: int, seed: int | None = None, epoch: int = 0
) -> list[Indices]:
    """The indices of the sentences of each batch of an epoch, a pure function of the arguments."""
    check_part(part)
    check_least({"tokens": tokens}, tokens=1)
    lengths = part.lengths
    if seed is None:
        by_task = _split_by_task(part, np.arange(len(part)))
        return [group for indices in by_task for group in _cut_by_length(part, indices, tokens)]
    rng = _generator(seed, epoch)
    shuffled = _epoch_indices(part, seed, epoch)
    rng.shuffle(shuffled)
    mean = max(1, int(lengths.sum()) // max(1, len(lengths)))
    pool = max(1, POOL * tokens // mean)
    groups = [
        group
        for indices in _split_by_task(part, shuffled)
        for start in range(0, len(indices), pool)
        for group in _cut_by_length(part, indices[start : start + pool], tokens)
    ]
    return [groups[index] for index in rng.permutation(len(groups))]


def padding_fraction(part: Part, tokens: int, seed: int | None = None) -> float:
    """The fraction of an epoch's batches, both sides, that is padding."""
    num_tokens = num_padded = 0
    for group in batch_indices(part, tokens, seed):
        for side in part.sides:
            lengths = side.lengths[group]
            num_tokens += int(lengths.sum())
            num_padded += len(group) * int(lengths.max())
    return 1 - num_tokens / max(1, num_padded)


def _epoch_indices(part: Part, seed: int, epoch: int) -> Indices:
    """The sentences of an epoch: each once, or of each task as many as its temperature gives."""
    mixture = part.mixture
    if part.task is None or mixture is None or mixture.temperature == 1:
        return np.arange(len(part))
    sizes = np.bincount(part.task, minlength=len(mixture.tasks)).tolist()
    counts = enumerate(mixture.epoch_counts(sizes))
    return np.concatenate(
        [
            _task_indices(part.indices_of_task(task), count, seed, epoch, task)
            for task, count in counts
            if count
        ]
    )


def _task_indices(indices: Indices, count: int, seed: int, epoch: int, task: int) -> Indices:
    """An epoch's sentences of a task: the next ``count`` of an endless series of permutations."""
    first, start = divmod(epoch * count, len(indices))
    num_orders = -(-(start + count) // len(indices))
    permutations = [
        _generator(seed, task, first + number).permutation(indices) for number in range(num_orders)
    ]
    return np.concatenate([indices[:0], *permutations])[start : start + count]


def _split_by_task(part: Part, indices: Indices) -> list[Indices]:
    """Splits the sentences by task if each batch is to have one task; else returns one group."""
    if part.task is None or part.mixture is None or not part.mixture.one_task:
        return [indices]
    tasks = part.task[indices]
    return [indices[tasks == task] for task in range(len(part.mixture.tasks))]


def _generator(*seeds: int) -> np.random.Generator:
    """A random number generator seeded by some integers, the same on every machine."""
    digest = hashlib.sha256(" ".join(map(str, seeds)).encode()).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little")))


def _cut_by_length(part: Part, indices: Indices, tokens: int) -> list[Indices]:
    """Sorts by length and splits where one more sentence would exceed the token budget.

    The sort is stable: sentences whose longer sides are equal stay in their shuffled order. Sorting
    by the shorter side too would halve the padding, but sentences of one such shape are similar in
    other ways (one language of several, one construction), and training on such homogeneous
    batches learns much less at the beginning.
    """
    lengths = part.lengths[indices]
    order = np.argsort(lengths, kind="stable")
    ordered, sorted_lengths = indices[order], lengths[order].tolist()
    cuts, start = [], 0
    for position, length in enumerate(sorted_lengths):
        if position > start and (position - start + 1) * length > tokens:
            cuts.append(position)
            start = position
    return [group for group in np.split(ordered, cuts) if len(group)]


def collate(part: Part, group: Sequence[int] | Indices) -> Batch:
    """Collates the sentences of a part at some indices into a padded batch."""
    source = None if part.sources is None else torch.from_numpy(part.sources.pad(group))
    target = torch.from_numpy(part.targets.pad(group))
    indices = np.asarray(group)
    before = part.targets.previous_tokens(group) if part.block_size else None
    if part.tags is not None:
        before = part.tags[indices].astype(np.int64)
    previous = None if before is None else torch.from_numpy(before)
    task_ids: TaskIds = {}
    if part.task is not None and part.mixture is not None:
        task_ids = part.mixture.task_ids(part.task[indices])
    batch = Batch(target, source, torch.as_tensor(indices), len(part), previous, **task_ids)
    if part.frames is None:
        return batch
    frame_counts = torch.from_numpy(part.frames.lengths[indices])
    return replace(
        batch, frames=torch.from_numpy(part.frames.pad(indices)), frame_counts=frame_counts
    )


def windows(part: Part, context: int, tokens: int) -> Iterator[Batch]:
    """Splits a running text into overlapping windows that score each token once.

    The first window is a whole block. Every other window is conditioned on ``context`` tokens and
    scores the following ones, a block in all; the last one scores the rest.

    Args:
        part: The text.
        context: Minimum number of tokens before each scored token, except in the first block. With
            ``block_size - 1`` every token has its own window (stride 1), with 0 the windows are the
            blocks.
        tokens: Maximum number of tokens of a batch.
    """
    rows, block_size = part.targets, part.block_size
    total = len(rows.tokens)
    ends = np.arange(min(block_size, total), total + 1, block_size - context, dtype=np.int64)
    groups = [ends[:1], *_chunks(ends[1:], max(1, tokens // block_size))]
    num_scored = [min(block_size, total), *[block_size - context] * (len(groups) - 1)]
    if ends[-1] < total:
        groups.append(np.array([total], dtype=np.int64))
        num_scored.append(total - int(ends[-1]))
    for window_ends, num_new in zip(groups, num_scored, strict=True):
        window = Rows(rows.tokens, window_ends, np.minimum(window_ends, context + num_new))
        indices = np.arange(len(window_ends))
        yield Batch(
            torch.from_numpy(window.pad(indices)),
            before=torch.from_numpy(window.previous_tokens(indices)),
            context=int(window.lengths[0]) - num_new,
        )


def _chunks(indices: Indices, size: int) -> list[Indices]:
    return [indices[start : start + size] for start in range(0, len(indices), size)]
