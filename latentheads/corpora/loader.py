"""The batches of every update, prepared beside training and taken up again at any place."""

from __future__ import annotations

import queue
import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from latentheads.batch import Batch, check_batch
from latentheads.corpora.batches import collate, groups
from latentheads.corpora.corpus import Part

__all__ = ["BatchLoader", "LoaderState", "PartLoader", "Step", "StepLoader"]

AHEAD = 16
"""Updates that wait for training at most."""


@dataclass(frozen=True)
class LoaderState:
    """Where a stream stands: the epoch, and how many of its batches have been used."""

    epoch: int = 0
    batch: int = 0


@dataclass(frozen=True)
class Step:
    """The share of one process in one update of the weights.

    Attributes:
        shares: Its share of each batch of the update, with a weight: 0 where a batch has fewer
            sentences than there are processes, and this one computes along for nothing.
        tokens: Target tokens of the whole update, of all processes.
        after: Where the stream goes on.
    """

    micro_batches: list[tuple[Batch, float]]
    tokens: int
    after: LoaderState


class StepLoader(ABC):
    """An endless row of updates, an epoch after the other.

    Args:
        accumulate: Batches of an update.
    """

    def __init__(self, accumulate: int = 1) -> None:
        if accumulate < 1:
            raise ValueError(f"accumulate must be at least 1, got {accumulate}")
        self.accumulate = accumulate

    @abstractmethod
    def epoch(self, number: int, skip: int) -> Iterator[tuple[Batch, float, int]]:
        """The batches of an epoch: what this process has of each, its weight, and target tokens.

        Args:
            number: Which epoch, counted from 0.
            skip: How many of its first batches have been used.
        """

    def updates(self, start: LoaderState = LoaderState()) -> Iterator[Step]:
        """The updates from a place on, each made when it is asked for."""
        pending: list[tuple[Batch, float]] = []
        tokens, epoch, place = 0, start.epoch, start.batch
        while True:
            for batch, weight, own in self.epoch(epoch, place):
                place += 1
                pending.append((batch, weight))
                tokens += own
                if len(pending) == self.accumulate:
                    yield Step(pending, tokens, LoaderState(epoch, place))
                    pending, tokens = [], 0
            epoch, place = epoch + 1, 0

    def ahead(self, start: LoaderState = LoaderState()) -> Generator[Step, None, None]:
        """The updates from a place on, made before they are asked for where that is possible."""
        yield from self.updates(start)


class PartLoader(StepLoader):
    """The updates of a part of a corpus, the same for a seed whatever the number of processes.

    An update is ``accumulate`` batches of the shuffled epoch; every process takes every P-th
    sentence of each. A thread prepares the batches while the last ones are trained on.

    Args:
        part: The sentences.
        tokens: Most padded tokens of a batch on either side, all processes together.
        seed: Of the order.
        accumulate: Batches of an update.
        rank: Which process this is.
        processes: How many there are.
        pin: Whether to put batches in pinned memory, from which a GPU copies while it computes.
    """

    def __init__(
        self,
        part: Part,
        tokens: int,
        seed: int,
        accumulate: int = 1,
        rank: int = 0,
        processes: int = 1,
        pin: bool = False,
    ) -> None:
        super().__init__(accumulate)
        if not len(part):
            raise ValueError("there is no sentence to train on")
        self.part = part
        self.tokens = tokens
        self.seed = seed
        self.rank, self.processes = rank, processes
        self.pin = pin

    def epoch(self, number: int, skip: int) -> Iterator[tuple[Batch, float, int]]:
        """The shuffled batches of an epoch."""
        for group in groups(self.part, self.tokens, self.seed, number)[skip:]:
            yield *self._share(group), int(self.part.targets.lengths[group].sum())

    def _share(self, group: Any) -> tuple[Batch, float]:
        mine = group[self.rank :: self.processes]
        batch = collate(self.part, mine if len(mine) else group[:1])
        return (batch.pinned() if self.pin else batch), float(len(mine) > 0)

    def ahead(self, start: LoaderState = LoaderState()) -> Generator[Step, None, None]:
        """The updates from a place on, made by a thread whose errors are raised here."""
        waiting: queue.Queue[Step | Exception] = queue.Queue(AHEAD)
        stopped = threading.Event()

        def put(item: Step | Exception) -> None:
            while not stopped.is_set():
                try:
                    return waiting.put(item, timeout=0.1)
                except queue.Full:
                    continue

        def work() -> None:
            try:
                for update in self.updates(start):
                    put(update)
                    if stopped.is_set():
                        return
            except Exception as mistake:
                put(mistake)

        worker = threading.Thread(target=work, daemon=True, name="batches")
        worker.start()
        try:
            while True:
                item = waiting.get()
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            stopped.set()
            worker.join()


class BatchLoader(StepLoader):
    """The updates of batches that the caller has made, for one process.

    Nothing is prepared beside training: a function of one's own may draw from the same noise.

    Args:
        batches: All of them, each epoch in another order; or a function that makes those of an
            epoch, whose order stays.
        seed: Of the order.
        accumulate: Batches of an update.
    """

    def __init__(
        self,
        batches: Sequence[Batch] | Callable[[int], Iterable[Batch]],
        seed: int = 0,
        accumulate: int = 1,
    ) -> None:
        super().__init__(accumulate)
        self.seed = seed
        if callable(batches):
            self._make = batches
            return
        self._known = number_sentences(batches)
        self._make = self._shuffle

    def _shuffle(self, number: int) -> Iterable[Batch]:
        chance = random.Random(f"{self.seed} {number}")
        return chance.sample(self._known, len(self._known))

    def epoch(self, number: int, skip: int) -> Iterator[tuple[Batch, float, int]]:
        """The batches of an epoch, as they come."""
        found, batches = 0, self._make(number)
        if batches is None:
            raise ValueError(f"batches must return those of epoch {number}, got None")
        for found, batch in enumerate(batches, 1):
            check_batch(batch, "batches")
            if not (tokens := int(batch.counted.sum())):
                raise ValueError(f"batch {found} of epoch {number} has nothing to predict")
            if found > skip:
                yield batch, 1.0, tokens
        if not found:
            raise ValueError(f"batches has none in epoch {number}")


def number_sentences(batches: Sequence[Batch]) -> list[Batch]:
    """Batches that know their places in the corpus which they are together.

    Those that say how large their corpus is stay as they are.
    """
    if any(batch.corpus_size for batch in batches):
        return list(batches)
    total, first, found = sum(map(len, batches)), 0, []
    for batch in batches:
        places = torch.arange(first, first + len(batch), device=batch.target.device)
        found.append(replace(batch, index=places, corpus_size=total))
        first += len(batch)
    return found
