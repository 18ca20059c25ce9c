"""Lines that are too long: left out of training, refused elsewhere.

Memory grows with the square of a sentence's length, and a sentence is never cut into two batches: a
single long line could end a training of days.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from latentheads.corpora.corpus import Corpus, Part, Tell

__all__ = ["Side", "Where", "limited", "refuse_long"]

Side = Literal["source", "target"]

Where = Callable[[str, Side, int], str]
"""Says where a sentence stands, by its part, the side and its place in the part."""


def limited(corpus: Corpus, max_line: int, where: Where, tell: Tell | None = None) -> Corpus:
    """The corpus without the lines that have too many tokens.

    Args:
        corpus: The corpus.
        max_line: Most tokens of a line on either side, its end counted.
        where: Names the first line that is too long.
        tell: Called with a line about the training sentences that are left out.

    Raises:
        ValueError: A line of valid or test is too long, or nothing is left to train on.
    """
    for name, part in (("valid", corpus.valid), ("test", corpus.test)):
        refuse_long(name, _lengths(corpus, part), max_line, where)
    train, lengths = corpus.train, _lengths(corpus, corpus.train)
    kept = np.flatnonzero(lengths.max(0) <= max_line)
    if len(kept) == len(train):
        return corpus
    first = _first("train", lengths, max_line, where)
    _refuse_nothing(corpus, kept, f"{first}, more than max_line {max_line:,}")
    if tell is not None:
        tell(
            f"{len(train) - len(kept):,} of {len(train):,} training sentences left out, longer "
            f"than max_line {max_line:,}: {first}"
        )
    return replace(corpus, train=train.take(kept))


def refuse_long(name: str, lengths: NDArray[np.int64], max_line: int, where: Where) -> None:
    """Refuses a line of valid or test that is too long.

    Args:
        name: The part.
        lengths: Tokens of every sentence, a row a side.
        max_line: Most tokens of a line on either side, its end counted.
        where: Names the first line that is too long.

    Raises:
        ValueError: A line is too long.
    """
    if long := int((lengths.max(0) > max_line).sum()):
        more = f", the first of {long:,} such lines" if long > 1 else ""
        raise ValueError(
            f"{_first(name, lengths, max_line, where)}, more than max_line {max_line:,}{more}: "
            "nothing of valid and test is left out"
        )


def _lengths(corpus: Corpus, part: Part) -> NDArray[np.int64]:
    """Tokens of every sentence, a row a side; of several references those of the longest."""
    target = part.targets.lengths
    source = np.zeros_like(target) if part.sources is None else part.sources.lengths
    if part.alternatives:
        counts = np.array([len(each) for each in part.alternatives])
        every = corpus.target.encode_all(chain.from_iterable(part.alternatives)).lengths
        target = np.maximum(target, np.maximum.reduceat(every, counts.cumsum() - counts))
    return np.stack([source, target])


def _first(name: str, lengths: NDArray[np.int64], max_line: int, where: Where) -> str:
    """The first line that is too long, and its tokens."""
    place = int(np.argmax(lengths.max(0) > max_line))
    source, target = lengths[:, place].tolist()
    side: Side = "source" if source > target else "target"
    return f"{where(name, side, place)} has {max(source, target):,} tokens"


def _refuse_nothing(corpus: Corpus, kept: NDArray[np.int64], why: str) -> None:
    """Refuses a corpus of which a task, or all, would have no training sentence left."""
    task = corpus.train.task
    present = {0} if task is None else set(task[kept].tolist())
    for place in range(max(1, len(corpus.tasks))):
        if place not in present or not len(kept):
            name = f" in {corpus.tasks[place].name}" if corpus.tasks else ""
            raise ValueError(f"{corpus.name} has nothing to train on{name}: {why}")
