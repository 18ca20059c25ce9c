"""Loaders of the batches of every optimiser step, prefetched in a thread and resumable."""

from __future__ import annotations

import queue
import random
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from latentheads.batch import Batch, check_batch
from latentheads.checks import check_not_empty
from latentheads.corpora.batches import batch_indices, collate
from latentheads.corpora.part import Part

PREFETCHED = 16
"""Maximum number of steps prefetched."""


@dataclass(frozen=True)
class LoaderState:
    """The position of a loader: the epoch, and how many of its batches have been used."""

    epoch: int = 0
    batch: int = 0


@dataclass(frozen=True)
class Step:
    """The batches of one process for one optimiser step.

    Attributes:
        micro_batches: This process's share of each batch, with a weight: 1, or 0 where a batch has
            fewer sentences than there are processes and this one only runs a dummy sentence.
        tokens: Number of target tokens of the whole step, of all processes.
        next_state: The loader's state after the step.
    """

    micro_batches: list[tuple[Batch, float]]
    tokens: int
    next_state: LoaderState


class StepLoader(ABC):
    """An endless iterator over optimiser steps, epoch after epoch."""

    def __init__(self, accumulate: int = 1) -> None:
        self.accumulate = accumulate

    @abstractmethod
    def epoch(self, number: int, skip: int) -> Iterator[tuple[Batch, float, int]]:
        """The batches of an epoch: this process's share, its weight, and all target tokens.

        Args:
            number: The epoch, from 0.
            skip: Number of batches at its beginning to skip.
        """

    def steps(self, start: LoaderState = LoaderState()) -> Iterator[Step]:
        """The steps from a state on, each made on demand."""
        pending: list[tuple[Batch, float]] = []
        tokens, epoch, batch_index = 0, start.epoch, start.batch
        while True:
            for batch, weight, batch_tokens in self.epoch(epoch, batch_index):
                batch_index += 1
                pending.append((batch, weight))
                tokens += batch_tokens
                if len(pending) == self.accumulate:
                    yield Step(pending, tokens, LoaderState(epoch, batch_index))
                    pending, tokens = [], 0
            epoch, batch_index = epoch + 1, 0

    def prefetch(self, start: LoaderState = LoaderState()) -> Generator[Step, None, None]:
        """The steps from a state on, made ahead of time where that is possible."""
        yield from self.steps(start)


class PartLoader(StepLoader):
    """The steps of a part of a corpus; they depend on the seed, not on the number of processes.

    A step is ``accumulate`` batches of the shuffled epoch. Each of P processes takes every P-th
    sentence of each. A thread prepares the next batches during training.

    Args:
        part: The sentences.
        tokens: Maximum number of tokens of a batch on either side, padding included, over all
            processes.
        seed: Seed of the shuffling.
        accumulate: Number of batches of a step.
        rank: Rank of this process.
        processes: Number of processes (world size).
        pin: Whether to put batches in pinned memory, for asynchronous copies to a GPU.
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
        check_not_empty("sentences of part", part)
        self.part = part
        self.tokens = tokens
        self.seed = seed
        self.rank, self.processes = rank, processes
        self.pin = pin

    def epoch(self, number: int, skip: int) -> Iterator[tuple[Batch, float, int]]:
        for group in batch_indices(self.part, self.tokens, self.seed, number)[skip:]:
            own_indices = group[self.rank :: self.processes]
            batch = collate(self.part, own_indices if len(own_indices) else group[:1])
            tokens = int(self.part.targets.lengths[group].sum())
            yield (batch.pin_memory() if self.pin else batch), float(len(own_indices) > 0), tokens

    def prefetch(self, start: LoaderState = LoaderState()) -> Generator[Step, None, None]:
        """The steps from a state on, made by a thread whose errors are raised here."""
        step_queue: queue.Queue[Step | Exception] = queue.Queue(PREFETCHED)
        stopped = threading.Event()

        def put(item: Step | Exception) -> None:
            while not stopped.is_set():
                try:
                    return step_queue.put(item, timeout=0.1)
                except queue.Full:
                    continue

        def work() -> None:
            try:
                for step in self.steps(start):
                    put(step)
                    if stopped.is_set():
                        return
            except Exception as error:
                put(error)

        worker = threading.Thread(target=work, daemon=True, name="batches")
        try:
            worker.start()  # which waits for the thread, and may be interrupted
            while True:
                item = step_queue.get()
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            stopped.set()
            if worker.is_alive():
                worker.join()


class BatchLoader(StepLoader):
    """The steps of user-supplied batches, for one process.

    Nothing is prefetched in a thread, since a user's function may use the global random number
    generator.

    Args:
        batches: All batches, shuffled anew every epoch; or a function that returns those of an
            epoch, which are not shuffled.
        seed: Seed of the shuffling.
        accumulate: Number of batches of a step.
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
            self._make_epoch = batches
            return
        self._batches = add_corpus_indices(batches)
        self._make_epoch = self._shuffle

    def _shuffle(self, number: int) -> Iterable[Batch]:
        rng = random.Random(f"{self.seed} {number}")
        return rng.sample(self._batches, len(self._batches))

    def epoch(self, number: int, skip: int) -> Iterator[tuple[Batch, float, int]]:
        batch_number, batches = 0, self._make_epoch(number)
        if batches is None:
            raise ValueError(f"batches must return those of epoch {number}, got None")
        for batch_number, batch in enumerate(batches, 1):
            check_batch(batch, "batches")
            if not (tokens := int(batch.scored_mask.sum())):
                raise ValueError(f"batch {batch_number} of epoch {number} has nothing to predict")
            if batch_number > skip:
                yield batch, 1.0, tokens
        if not batch_number:
            raise ValueError(f"batches has none in epoch {number}")


def add_corpus_indices(batches: Sequence[Batch]) -> list[Batch]:
    """Adds to batches the indices of their sentences in the corpus that they form together.

    Batches that have a `corpus_size` already are returned unchanged.
    """
    if any(batch.corpus_size for batch in batches):
        return list(batches)
    total, first, indexed = sum(map(len, batches)), 0, []
    for batch in batches:
        indices = torch.arange(first, first + len(batch), device=batch.target.device)
        indexed.append(replace(batch, index=indices, corpus_size=total))
        first += len(batch)
    return indexed
