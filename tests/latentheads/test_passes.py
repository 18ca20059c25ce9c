"""Threads take turns at passes, and find what each would have found alone."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from threading import Barrier, Event
from typing import Any

import pytest
import torch

import latentheads as lh
from latentheads.decoding.translate import Decoding, search
from latentheads.passes import one_at_a_time
from latentheads.training.engine import Engine
from latentheads.training.options import Training
from tests.latentheads.training.engines import part
from tests.tiny import attach, build, small_batch

THREADS = 3


def make(seed: int) -> tuple[Any, Any]:
    torch.manual_seed(seed)
    model = build(prior="independent")
    return model.eval(), attach("cascaded", model).eval()


def train(model: Any, guide: Any) -> Any:
    plan = Training(steps=4, tokens=29, report_every=2)
    Engine(model, guide, part(), plan, seed=5).run(lambda progress: None)
    return [parameter.detach() for parameter in model.parameters()]


def step(model: Any, guide: Any) -> Any:
    with torch.random.fork_rng([]):
        return lh.Head_ELBO()(model, guide)(small_batch()).isfinite()


WORK: dict[str, Callable[[Any, Any], Any]] = {
    "training": train,
    "evaluation": lambda *pair: lh.evaluate(*pair, [small_batch()], samples=3).scores(),
    "loss": step,
    "search": lambda model, _: search(model, small_batch(), Decoding(beam=2, max_tokens=4), 0),
}


@pytest.mark.parametrize("work", WORK)
def test_threads_find_what_each_finds_alone(work: str) -> None:
    alone = [WORK[work](*make(seed)) for seed in range(THREADS)]
    pairs, begin = [make(seed) for seed in range(THREADS)], Barrier(THREADS)

    def run(pair: tuple[Any, Any]) -> list[Any]:
        torch.set_default_dtype(torch.float64)
        begin.wait()
        return [WORK[work](*pair) for _ in range(1 if work == "training" else 5)]

    with ThreadPoolExecutor(THREADS) as pool:
        together = list(pool.map(run, pairs))
    for found, wanted in zip(together, alone, strict=True):
        for each in found:
            torch.testing.assert_close(each, wanted, rtol=0, atol=0)


def free() -> bool:
    """Whether a process finds the lock free."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: one_at_a_time().__enter__() is None).result(timeout=10)


def test_a_forked_process_waits_for_no_thread_of_its_parent() -> None:
    held, end = Event(), Event()

    def hold() -> None:
        with one_at_a_time():
            held.set()
            end.wait(30)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(hold)
        held.wait(30)
        fork = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(1, mp_context=fork) as child:
            found = child.submit(free).result(timeout=20)
        end.set()
    assert found
