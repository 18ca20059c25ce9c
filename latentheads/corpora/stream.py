"""The batches of every update, prepared beside training and taken up again at any place."""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

from latentheads.batch import Batch
from latentheads.corpora.batches import collate, groups
from latentheads.corpora.corpus import Part

__all__ = ["Place", "Stream", "Update"]

AHEAD = 16
"""Updates that wait for training at most."""


@dataclass(frozen=True)
class Place:
    """Where a stream stands: so many batches of an epoch have been used."""

    epoch: int = 0
    batch: int = 0


@dataclass(frozen=True)
class Update:
    """What one process computes for one update of the weights.

    Attributes:
        shares: Its share of each batch of the update, with a weight: 0 where a batch has fewer
            sentences than there are processes, and this one computes along for nothing.
        tokens: Target tokens of the whole update, of all processes.
        after: Where the stream goes on.
    """

    shares: list[tuple[Batch, float]]
    tokens: int
    after: Place


class Stream:
    """An endless stream of updates, the same for a seed whatever the number of processes.

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
        if accumulate < 1:
            raise ValueError(f"accumulate must be at least 1, got {accumulate}")
        if not len(part):
            raise ValueError("there is no sentence to train on")
        self.part = part
        self.tokens = tokens
        self.seed = seed
        self.accumulate = accumulate
        self.rank, self.processes = rank, processes
        self.pin = pin

    def updates(self, start: Place = Place()) -> Iterator[Update]:
        """The updates from a place on, each made when it is asked for."""
        pending: list[tuple[Batch, float]] = []
        tokens, epoch, skip = 0, start.epoch, start.batch
        while True:
            plan = groups(self.part, self.tokens, self.seed, epoch)
            for place, group in enumerate(plan[skip:], skip + 1):
                pending.append(self._share(group))
                tokens += int(self.part.targets.lengths[group].sum())
                if len(pending) == self.accumulate:
                    yield Update(pending, tokens, Place(epoch, place))
                    pending, tokens = [], 0
            epoch, skip = epoch + 1, 0

    def _share(self, group: Any) -> tuple[Batch, float]:
        mine = group[self.rank :: self.processes]
        batch = collate(self.part, mine if len(mine) else group[:1])
        return (batch.pinned() if self.pin else batch), float(len(mine) > 0)

    def ahead(self, start: Place = Place()) -> Generator[Update, None, None]:
        """The same updates, made by a thread beside the caller; its mistakes are raised here."""
        waiting: queue.Queue[Update | Exception] = queue.Queue(AHEAD)
        stopped = threading.Event()

        def put(item: Update | Exception) -> None:
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
