"""Batches shared among real processes: order, shares, memory, errors, ends."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from select import select

import pytest
import torch
from torch import Tensor

from latentheads.contrib.align import bitext
from latentheads.contrib.align.api import align, project
from latentheads.contrib.align.bitext import Bitext, make_bitext, mark_ends
from latentheads.contrib.align.projection import Span
from latentheads.contrib.align.training import AlignerOptions, Training, train_directions
from latentheads.contrib.align.workers import map_batches, shared_zeros
from latentheads.errors import UnfinishedError
from latentheads.passes import SMALLEST_NORMAL, flush_denormals
from tests.experiments.programs import FORKS

pytestmark = FORKS

SOURCE = ["the house", "the book", "", "a book", "a red house", "the red book", "a house"]
TARGET = ["das Haus", "das Buch", "", "ein Buch", "ein rotes Haus", "das rote Buch", "ein Haus"]
SOURCE, TARGET = (
    [*side, f"{side[4]} {side[0]} {side[5]} {side[3]} ,"] for side in (SOURCE, TARGET)
)


@pytest.fixture
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of a line or two."""
    monkeypatch.setattr(bitext, "BATCH_CELLS", 20)


FEW = AlignerOptions(iterations=2)

small_batches = pytest.mark.usefixtures("_small_batches")


def make_text() -> Bitext:
    pairs = zip(SOURCE, TARGET, strict=True)
    return make_bitext(mark_ends((left.split(), right.lower().split()) for left, right in pairs))


@pytest.mark.parametrize("workers", [1, 2, 3, 9])
def test_results_come_in_order_from_the_same_shares(workers: int) -> None:
    results = list(map_batches(lambda *call: (*call, os.getpid()), 7, workers))
    assert [index for index, _, _ in results] == [*range(7)]
    numbers = [number for _, number, _ in results]
    later = [1 + index % workers for index in range(6)] if workers > 1 else [0] * 6
    assert numbers == [0, *later]
    assert len({process for _, _, process in results}) == len({*numbers})
    assert list(map_batches(lambda *call: call, 0, workers)) == []


def state_of_process(_: int, number: int) -> tuple[bool, bool, int, bool]:
    states = torch.is_grad_enabled(), SMALLEST_NORMAL / 2 == 0, torch.get_num_threads()
    return (*states, number > 0)


def test_a_worker_computes_as_its_parent_does_in_one_thread() -> None:
    torch.set_num_threads(2)
    try:
        with torch.no_grad(), flush_denormals():
            states = set(map_batches(state_of_process, 3, 2))
        assert states == {(False, True, 2, False), (False, True, 1, True)}
        states = set(map_batches(state_of_process, 3, 2))
        assert states == {(True, False, 2, False), (True, False, 1, True)}
    finally:
        torch.set_num_threads(1)


def interrupt_worker(index: int, number: int) -> int:
    if number:  # Ctrl-C reaches all processes of a terminal
        os.kill(os.getpid(), signal.SIGINT)
    return index


def test_a_worker_leaves_an_interrupt_to_its_parent() -> None:
    assert [*map_batches(interrupt_worker, 5, 2)] == [*range(5)]


def test_a_fast_worker_waits_for_a_slow_one() -> None:
    begun = shared_zeros(torch.zeros(3))

    def compute(_: int, number: int) -> bytes:
        begun[number] += 1
        time.sleep(0.2 if number == 1 and begun[1] == 1 else 0)
        return bytes(100_000)  # more than a pipe holds

    assert len(list(islice(map_batches(compute, 101, 2), 2))) == 2
    assert begun[2] < 12


def end_by(number: signal.Signals) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def fail() -> None:
    raise FloatingPointError("line 4 has no finite probability")


@pytest.mark.parametrize(
    ("trouble", "kind", "message"),
    [
        (fail, FloatingPointError, "^line 4 has no finite probability$"),
        (end_by(signal.SIGKILL), UnfinishedError, "^a worker was ended by SIGKILL, as by a syst"),
        (end_by(signal.SIGTERM), UnfinishedError, "^a worker was ended by SIGTERM$"),
        (lambda: os._exit(3), UnfinishedError, "^a worker ended with status 3$"),
    ],
)
def test_trouble_of_a_worker_reaches_its_parent_and_ends_the_others(
    trouble: Callable[[], None], kind: type[Exception], message: str
) -> None:
    reading, writing = os.pipe()

    def compute(index: int, _: int) -> int:
        if index == 3:
            trouble()
        time.sleep({2: 0.1, 4: 60}.get(index, 0))
        return index

    results = map_batches(compute, 7, 2)
    assert list(islice(results, 2)) == [0, 1]
    with pytest.raises(kind, match=message):
        list(results)
    os.close(writing)
    assert_nobody_writes(reading)


def assert_nobody_writes(reading: int) -> None:
    """A pipe ends where no process has its other end."""
    assert select([reading], [], [], 20)[0]
    assert os.read(reading, 1) == b""
    os.close(reading)


def test_a_worker_that_cannot_be_started_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fail)
    with pytest.raises(UnfinishedError, match=r"^cannot start a worker: Resource temporarily un"):
        list(map_batches(lambda index, _: index, 3, 2))


def test_workers_end_if_their_parent_is_killed() -> None:
    reading, writing = os.pipe()
    if not (parent := os.fork()):
        try:
            results = map_batches(lambda *_: bytes(100_000), 99, 2)
            assert len([*islice(results, 3)]) == 3
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    os.close(writing)
    assert os.waitstatus_to_exitcode(os.waitpid(parent, 0)[1]) == -signal.SIGKILL
    assert_nobody_writes(reading)


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_workers_are_ended_where_no_process_is_remembered(handler: signal.Handlers) -> None:
    before = signal.signal(signal.SIGCHLD, handler)
    try:
        assert list(map_batches(lambda index, _: index, 5, 2)) == [*range(5)]
    finally:
        signal.signal(signal.SIGCHLD, before)


def sums_of(training: Training) -> list[Tensor]:
    return [
        value
        for side in training.directions
        for value in (side.counts.links, side.null, side.jumps.weights)
    ]


@small_batches
@pytest.mark.parametrize(("agreement", "leave_one_out"), [(1.0, None), (0.5, 0), (0.0, 1)])
def test_sums_are_the_same_but_for_rounding(agreement: float, leave_one_out: int | None) -> None:
    options = AlignerOptions(iterations=2, agreement=agreement, leave_one_out=leave_one_out)
    done: list[tuple[int, int]] = []
    batches = len(make_text().batches)
    assert batches > 3

    def train(workers: int) -> list[Tensor]:
        done.clear()
        report = lambda *step: done.append(step)  # noqa: E731
        trained = sums_of(train_directions(make_text(), options, report, workers=workers))
        assert done == [(step, 2 * batches) for step in range(1, 2 * batches + 1)]
        return trained

    alone, two = train(1), train(2)
    torch.testing.assert_close(two, alone, rtol=1e-12, atol=1e-12)
    if agreement == 1:
        assert all(map(torch.equal, two, train(2)))
        torch.testing.assert_close(train(3), alone, rtol=1e-12, atol=1e-12)


@small_batches
def test_links_are_the_same() -> None:
    alone, shared = (align(SOURCE, TARGET, options=FEW, workers=n) for n in (1, 2))
    assert shared.links == alone.links
    for one, other in zip(alone.posteriors, shared.posteriors, strict=True):
        for name in ("product", "null_source", "null_target", "log_probs"):
            torch.testing.assert_close(
                *(torch.tensor(getattr(p, name)) for p in (one, other)), equal_nan=True
            )
    assert alone.aligner is not None
    new = [align(SOURCE, TARGET, aligner=alone.aligner, workers=n).posteriors for n in (1, 2)]
    for one, other in zip(*new, strict=True):
        for name in ("product", "null_source", "null_target"):
            assert getattr(one, name).tobytes() == getattr(other, name).tobytes()
    more = [
        align(SOURCE, TARGET, options=FEW, start=alone.aligner, workers=n).links for n in (1, 2)
    ]
    assert more[0] == more[1]


@small_batches
def test_spans_are_carried_by_workers_too() -> None:
    spans = [[Span(1, 2)], [], [], [Span(0, 1), Span(1, 2)], [Span(1, 3)], [], [], [Span(0, 9)]]
    alone, shared = (
        [
            span
            for line in project(SOURCE, TARGET, spans, options=FEW, workers=n)
            for span in line
            if span
        ]
        for n in (1, 2)
    )
    assert len(alone) == 5
    for one, other in zip(alone, shared, strict=True):
        assert replace(one, probability=0) == replace(other, probability=0)
        assert one.probability == pytest.approx(other.probability)


def test_a_number_of_workers_that_cannot_be_is_one_line() -> None:
    with pytest.raises(ValueError, match=r"^workers must be at least 1, got 0$"):
        align(["a"], ["b"], workers=0)
