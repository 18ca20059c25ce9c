"""Length limits: drop training lines that are too long, raise an error for held-out ones.

Memory grows with the square of a sentence's length, and a sentence is never split over two batches.
A single long line could therefore end a training run of days.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from latentheads.corpora.part import Log, Part
from latentheads.corpora.vocabulary import Vocabulary

Side = Literal["source", "target"]

LineLocator = Callable[[str, Side, int], str]
"""Returns the file and line of a sentence, given its part, its side and its index in the part."""


def drop_long_lines(
    corpus_name: str,
    train: Part,
    held_out: Mapping[str, Part],
    target: Vocabulary,
    max_line: int,
    locate: LineLocator,
    log: Log | None = None,
) -> Part:
    """The training part without lines that have too many tokens.

    Args:
        corpus_name: Name of the corpus, for messages.
        train: The training part.
        held_out: The other parts by name, which must have no such line.
        target: The target vocabulary, in which other references of a sentence are counted.
        max_line: Most tokens of a line.
        locate: Where a line stands.
        log: Called with a line about what was dropped.

    Raises:
        ValueError: A held-out line is too long, or nothing is left to train on.
    """
    for name, part in held_out.items():
        validate_lengths(name, _lengths(part, target), max_line, locate)
    lengths = _lengths(train, target)
    kept_indices = np.flatnonzero(lengths.max(0) <= max_line)
    if len(kept_indices) == len(train):
        return train
    first_too_long = _describe_first("train", lengths, max_line, locate)
    reason = f"{first_too_long}, more than max_line {max_line:,}"
    _check_nonempty(corpus_name, train, kept_indices, reason)
    if log is not None:
        dropped = len(train) - len(kept_indices)
        log(
            f"{dropped:,} of {len(train):,} training sentences left out, longer "
            f"than max_line {max_line:,}: {first_too_long}"
        )
    return train.take(kept_indices)


def validate_lengths(
    name: str, lengths: NDArray[np.int64], max_line: int, locate: LineLocator
) -> None:
    """Raises an error if a line of valid or test is too long."""
    if num_too_long := int((lengths.max(0) > max_line).sum()):
        suffix = f", the first of {num_too_long:,} such lines" if num_too_long > 1 else ""
        first_too_long = _describe_first(name, lengths, max_line, locate)
        raise ValueError(
            f"{first_too_long}, more than max_line {max_line:,}{suffix}: "
            "nothing of valid and test is left out"
        )


def _lengths(part: Part, vocabulary: Vocabulary) -> NDArray[np.int64]:
    """Number of tokens of every sentence, one row for each side.

    Where a sentence has several references the longest counts.
    """
    target = part.targets.lengths
    source = np.zeros_like(target) if part.sources is None else part.sources.lengths
    if part.alternatives:
        counts = np.array([len(references) for references in part.alternatives])
        encoded = vocabulary.encode_all(chain.from_iterable(part.alternatives))
        target = np.maximum.reduceat(encoded.lengths, counts.cumsum() - counts)
    return np.stack([source, target])


def _describe_first(
    name: str, lengths: NDArray[np.int64], max_line: int, locate: LineLocator
) -> str:
    """Describes the first line that is too long: its position and number of tokens."""
    index = int(np.argmax(lengths.max(0) > max_line))
    source, target = lengths[:, index].tolist()
    side: Side = "source" if source > target else "target"
    return f"{locate(name, side, index)} has {max(source, target):,} tokens"


def _check_nonempty(
    corpus_name: str, train: Part, kept_indices: NDArray[np.int64], reason: str
) -> None:
    """Raises an error if a task, or the whole corpus, has no training sentence left."""
    present_tasks = {0} if train.task is None else set(train.task[kept_indices].tolist())
    names = ("",) if train.mixture is None else (f" in {name}" for name in train.mixture.names)
    for task_index, name in enumerate(names):
        if task_index not in present_tasks or not len(kept_indices):
            raise ValueError(f"{corpus_name} has nothing to train on{name}: {reason}")
