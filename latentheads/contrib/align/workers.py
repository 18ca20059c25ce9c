"""Batches shared among processes that are forked for one pass over a text.

A worker has all that its parent holds without a copy of it, takes every n-th batch, and sends back
its results batch by batch. Threads gain nothing: the steps of a chain are small, and hold Python's
lock. Nor do processes that are sent batches, as those of PyTorch's DataLoader are: moving dense
tensors costs what it saves.
"""

from __future__ import annotations

import io
import mmap
import pickle
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from threading import current_thread, main_thread
from typing import Any, TypeVar

import torch
from torch import Tensor

from latentheads.checks import check_least
from latentheads.errors import UnfinishedError

AHEAD = 4
"""Batches that each worker may be ahead of the one that is waited for, which bounds memory."""

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that ask a program to end."""

Result = TypeVar("Result")

BatchFunction = Callable[[int, int], Result]
"""Called with the index of a batch, and the number of its caller: 0 this process, from 1 its
workers."""


def check_workers(workers: int) -> None:
    """Checks a number of processes."""
    check_least({"workers": workers}, workers=1)


def map_batches(function: BatchFunction[Result], batches: int, workers: int) -> Iterator[Result]:
    """Yields the result of each batch, in their order.

    The first batch is always done here: what is computed at its first use is then there before
    workers are forked.

    Args:
        function: Computes the result of a batch, which can be pickled.
        batches: Number of batches.
        workers: Number of processes; 1: this one.

    Raises:
        Exception: What the function raised, at its batch, as if all were done here.
        UnfinishedError: A worker was killed, or none can be started.
    """
    check_workers(workers)
    alone = batches if workers == 1 else min(batches, 1)
    for index in range(alone):
        yield function(index, 0)
    if alone < batches:
        with _forked(function, [range(n, batches, workers) for n in range(1, workers + 1)]) as team:
            yield from _in_order(team, range(alone, batches))


def shared_zeros(like: Tensor) -> Tensor:
    """Zeros of the size of a tensor, in memory that forked processes share with this one.

    That of ``Tensor.share_memory_`` would be a file in /dev/shm, which is small in a container.
    """
    memory = mmap.mmap(-1, like.nbytes)
    return torch.frombuffer(memory, dtype=like.dtype).view(like.shape)


@dataclass
class _Worker:
    """A worker as its parent sees it.

    Attributes:
        process: Its process.
        results: The end of the pipe of its results.
        share: Its batches whose results have not been received.
    """

    process: BaseProcess
    results: Connection
    share: range

    def receive(self) -> tuple[int, Any]:
        """Waits for what comes of its next batch, a result or an error, with its index."""
        try:
            message = self.results.recv_bytes()
        except (EOFError, OSError):
            self.process.join()
            raise UnfinishedError(_describe_end(self.process.exitcode)) from None
        index, result = self.share[0], pickle.loads(message)
        self.share = self.share[:0] if isinstance(result, _Failure) else self.share[1:]
        return index, result

    def end(self) -> None:
        """Ends its process, if it has not ended."""
        self.process.kill()
        self.process.join()
        self.results.close()


@dataclass(frozen=True)
class _Failure:
    """Why a batch has no result, and where that was raised."""

    error: Exception
    trace: str


def _describe_end(status: int | None) -> str:
    """How a worker ended before its work was done."""
    if status is None or status >= 0:
        return f"a worker ended with status {status}"
    name = signal.Signals(-status).name
    hint = ", as by a system that is out of memory: fewer workers take less"
    return f"a worker was ended by {name}{hint if name == 'SIGKILL' else ''}"


@contextmanager
def _forked(function: BatchFunction[Any], shares: Sequence[range]) -> Iterator[list[_Worker]]:
    """Forks a worker for each share of the batches; none is left behind."""
    context, team = get_context("fork"), list[_Worker]()
    try:
        with _held_signals():
            for number, share in enumerate(filter(len, shares), 1):
                receiving, sending = context.Pipe(duplex=False)
                ends = [*(worker.results for worker in team), receiving]
                arguments = function, number, share, sending, ends
                process = context.Process(target=_work, args=arguments, daemon=True)
                _start(process)
                sending.close()
                team.append(_Worker(process, receiving, share))
        yield team
    finally:
        with _held_signals():
            for worker in team:
                worker.end()


def _start(process: BaseProcess) -> None:
    """Starts a process."""
    try:
        process.start()
    except BlockingIOError as reason:  # as where a user has too many
        raise UnfinishedError(f"cannot start a worker: {reason.strerror}") from None


@contextmanager
def _held_signals() -> Iterator[None]:
    """Context in which signals wait: what they raise in what Python calls at a fork is lost."""
    if current_thread() is not main_thread():  # where none is handled
        yield
        return
    held: list[int] = []
    handlers = {number: signal.getsignal(number) for number in ENDING}
    handlers = {number: handler for number, handler in handlers.items() if callable(handler)}
    for number in handlers:
        signal.signal(number, lambda number, _: held.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for late in held:
            signal.raise_signal(late)


def _in_order(team: Sequence[_Worker], indices: range) -> Iterator[Any]:
    """Yields the result of each batch; raises the error of the first that has none."""
    waiting: dict[int, Any] = {}
    for index in indices:
        last = index + AHEAD * len(team)
        while index not in waiting:
            near: dict[Any, _Worker] = {
                w.results: w for w in team if w.share and w.share[0] <= last
            }
            waiting.update(near[end].receive() for end in wait([*near]))
        result = waiting.pop(index)
        if isinstance(result, _Failure):
            raise result.error from RuntimeError(f"in a worker:\n{result.trace}")
        yield result


def _work(
    function: BatchFunction[Any],
    number: int,
    share: range,
    results: Connection,
    ends: Sequence[Connection],
) -> None:
    """What a worker does: it sends the result of each batch of its share, or the first error."""
    for end in ends:  # while this process held one, no worker would notice the end of the parent
        end.close()
    _leave_signals_to_the_parent()
    torch.set_num_threads(1)
    with suppress(BrokenPipeError):
        for index in share:
            try:
                message = _pickled(function(index, number))
            except Exception as error:
                results.send_bytes(_pickled(_Failure(error, traceback.format_exc())))
                return
            results.send_bytes(message)


def _leave_signals_to_the_parent() -> None:
    """Ctrl-C reaches all processes of a terminal: the parent handles it, and ends its workers."""
    for number in ENDING:
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class _Pickler(pickle.Pickler):
    """Writes tensors as arrays; PyTorch's own way between processes is a file for each."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return torch.from_numpy, (value.numpy(),)
        return NotImplemented


def _pickled(value: object) -> memoryview:
    file = io.BytesIO()
    _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
    return file.getbuffer()
