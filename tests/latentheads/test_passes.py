"""Threads take turns at passes, and find what each would have found alone."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from ast import literal_eval
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, wait
from contextlib import nullcontext, suppress
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import pyro
import pytest
import torch
from pyro.poutine.runtime import _PYRO_STACK
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import latentheads as lh
from latentheads.contrib.heads import sample_weights, score_attention
from latentheads.contrib.heads.analysis import analyse_heads
from latentheads.contrib.hf.registry import OWNER
from latentheads.decoding.options import Decoding
from latentheads.decoding.sampling import sample_text
from latentheads.decoding.translate import search
from latentheads.experiments.cli.errors import error_handling
from latentheads.handlers import isolated_param_store
from latentheads.latents.alignments.emission import EmissionRequest
from latentheads.noise import fixed_noise
from latentheads.passes import (
    evaluation_mode,
    flush_denormals,
    frozen_parameters,
    one_at_a_time,
)
from latentheads.runs.run import Run
from latentheads.training.engine import Engine
from latentheads.training.options import Training
from tests.latentheads.contrib.hf.networks import IDS, gpt2
from tests.latentheads.contrib.page.runs import make_run, small_corpus
from tests.latentheads.latents.alignments.models import SHAPES, aligned
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


def sum_of_noise() -> Tensor:
    with fixed_noise(3, torch.device("cpu")):
        return torch.stack([torch.randn(7) for _ in range(3000)]).sum()


WORK: dict[str, Callable[[Any, Any], Any]] = {
    "training": train,
    "evaluation": lambda *pair: lh.evaluate(*pair, [small_batch()], num_samples=3).scores(),
    "loss": step,
    "noise": lambda *_: sum_of_noise(),
    "search": lambda model, _: search(
        model, small_batch(), Decoding(num_beams=2, max_new_tokens=4), 0
    ),
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
    for actual, wanted in zip(together, alone, strict=True):
        for item in actual:
            torch.testing.assert_close(item, wanted, rtol=0, atol=0)


def test_threads_evaluate_one_model_that_is_in_training_mode() -> None:
    model, guide = (part.train() for part in make(0))
    begin = Barrier(THREADS)

    def run(_: int) -> Any:
        torch.set_default_dtype(torch.float64)
        begin.wait()
        return [WORK["evaluation"](model, guide) for _ in range(5)]

    with ThreadPoolExecutor(THREADS) as pool:
        together = [scores for outcome in pool.map(run, range(THREADS)) for scores in outcome]
    assert together == [together[0]] * len(together)
    assert model.training


CHANGES: dict[str, tuple[Callable[[nn.Module], Any], Callable[[nn.Linear], bool]]] = {
    "mode": (evaluation_mode, lambda layer: layer.training),
    "gradients": (frozen_parameters, lambda layer: layer.weight.requires_grad),
    "parameters": (lambda _: isolated_param_store(), lambda _: "mine" in pyro.get_param_store()),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_context_waits_for_other_threads_before_it_changes_what_they_use(name: str) -> None:
    context, is_unchanged = CHANGES[name]
    layer, _ = nn.Linear(1, 1), pyro.param("mine", torch.ones(1))

    def enter() -> bool:
        with context(layer):
            return is_unchanged(layer)

    with ThreadPoolExecutor(1) as pool:
        with one_at_a_time():
            inside = pool.submit(enter)
            wait([inside], timeout=0.2)
            assert is_unchanged(layer)
            assert not inside.done()
        assert not inside.result(timeout=30)
    assert is_unchanged(layer)


CALLS_WITH_HANDLERS: dict[str, Callable[[Run], Any]] = {
    "samples": lambda run: sample_weights(run.model, run.guide, small_batch(), num_samples=2),
    "attention": lambda run: score_attention(run.model, run.corpus.test, run.guide),
    "divergence": lambda run: lh.plot.divergence(run),
    "page": lambda run: lh.contrib.page.report(run, sentences=1, shown=1, num_samples=2),
    "analysis": lambda run: analyse_heads(
        run, run.corpus, run.corpus.test, lh.contrib.heads.AnalysisOptions()
    ),
    "network": lambda _: lh.head_posterior(NETWORK, {"input_ids": IDS}, "decoder.1.self", tau=1),
}
NETWORK = gpt2().eval()


@pytest.mark.parametrize("name", CALLS_WITH_HANDLERS)
def test_handlers_of_a_thread_that_waits_do_not_act_on_the_one_that_runs(
    name: str, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run", small_corpus(text=name == "analysis"))

    def call() -> None:
        torch.set_default_dtype(torch.float64)
        CALLS_WITH_HANDLERS[name](run)

    with ThreadPoolExecutor(1) as pool:
        with one_at_a_time():
            called = pool.submit(call)
            wait([called], timeout=0.3)
            assert not _PYRO_STACK
            assert not hasattr(NETWORK, OWNER)
        called.result(timeout=60)


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
            result = child.submit(free).result(timeout=20)
        end.set()
    assert result


def halve() -> float:
    """Half of the smallest normal number: 0 where denormal numbers are flushed."""
    return float(2.0**-1022) / float(2)


def flushes() -> bool:
    """Whether this thread flushes, for Python and for PyTorch."""
    python, pytorch = halve() == 0, float(torch.tensor([2.0**-126]).float().div(2)) == 0
    assert python == pytorch
    return python


def test_only_inside_and_not_behind_an_error() -> None:
    assert not flushes()
    with flush_denormals():
        assert flushes()
        with flush_denormals():
            assert flushes()
        assert flushes()
    assert not flushes()
    with pytest.raises(KeyboardInterrupt), flush_denormals():
        raise KeyboardInterrupt
    assert not flushes()


def test_a_mode_of_the_callers_own_stays() -> None:
    torch.set_flush_denormal(True)
    try:
        with flush_denormals():
            assert flushes()
        assert flushes()
    finally:
        torch.set_flush_denormal(False)


def test_a_thread_has_a_mode_of_its_own() -> None:
    with ThreadPoolExecutor(1) as early:
        assert not early.submit(flushes).result()
        with flush_denormals():
            assert not early.submit(flushes).result()
            with ThreadPoolExecutor(1) as late:
                assert late.submit(flushes).result()
        assert not flushes()


def test_a_forked_process_can_use_it_too() -> None:
    context = multiprocessing.get_context("fork")
    with flush_denormals(), ProcessPoolExecutor(1, mp_context=context) as pool:
        assert pool.submit(flushes_within).result() == (True, True)
    assert not flushes()


def flushes_within() -> tuple[bool, bool]:
    """Inside the context, and behind it: what a forked process has inherited stays."""
    with flush_denormals():
        inside = flushes()
    return inside, flushes()


def note_pass(model: Any, seen: list[bool]) -> None:
    model.register_forward_pre_hook(lambda *_: seen.append(flushes()))


def training(model: Any, guide: Any) -> None:
    Engine(model, guide, part(), Training(steps=2, report_every=2)).run(lambda progress: None)


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "evaluate": lambda model, guide: lh.evaluate(model, guide, [small_batch()]),
    "terms": lambda model, guide: lh.terms(model.eval(), guide.eval(), small_batch()),
    "training": training,
}


@pytest.mark.parametrize("call", CALLS)
def test_a_pass_of_the_library_flushes_and_nothing_behind_it_does(call: str) -> None:
    model, seen = build(), list[bool]()
    guide = attach("cascaded", model)
    note_pass(model, seen)
    CALLS[call](model, guide)
    assert seen
    assert all(seen)
    assert not flushes()
    with suppress(ZeroDivisionError):
        model.register_forward_pre_hook(lambda *_: 1 / 0)
        CALLS[call](model, guide)
    assert not flushes()


@pytest.mark.parametrize("kind", ["translation", "language-model"])
def test_decoding_flushes(kind: str) -> None:
    model, seen = build(kind, prior="delta").eval(), list[bool]()
    before = model.step

    def step(*arguments: Any) -> Tensor:
        seen.append(flushes())
        result: Tensor = before(*arguments)
        return result

    model.step = step
    if kind == "translation":
        search(model, small_batch(), Decoding(num_beams=2, max_new_tokens=2), 0)
    else:
        sample_text(model, [[4, 5]], 2)
    assert seen
    assert all(seen)
    assert not flushes()


WORKERS = """
from threading import Thread
import torch
import latentheads as lh
from latentheads.experiments.cli.errors import error_handling
from latentheads.passes import _are_flushed, flush_denormals
from tests.tiny import attach, build, small_batch

with flush_denormals():
    of_process = _are_flushed()
of_process = of_process, _are_flushed()

def start_workers(*_):
    torch.ones(2**20).add_(1)

def share_flushed():
    return float((torch.full((2**20,), 2.0**-126) / 2 == 0).double().mean())

def run_program():
    with error_handling("run.py"):
        start_workers()
        shares["within a program"] = share_flushed()

def start_within(name, call):
    assert torch.get_num_threads() == 2
    call()
    shares[name] = share_flushed()

model, shares = build(), {}
guide, batch = attach("cascaded", model), small_batch(index=[0, 1, 2], corpus_size=3)
model.register_forward_pre_hook(start_workers)
calls = {
    "evaluate": lambda: lh.evaluate(model, guide, [batch]),
    "fit": lambda: lh.fit(model, guide, [batch], steps=1, warmup_steps=1, quiet=True),
    "terms": lambda: lh.terms(model.eval(), guide.eval(), batch),
    "program": run_program,
}
for name, call in calls.items():  # a thread has a pool of workers of its own
    thread = Thread(target=start_within, args=(name, call))
    thread.start()
    thread.join()
print((of_process, shares))
"""


def test_in_a_process_started_inside_workers_flush_behind_no_call_and_within_a_program() -> None:
    with flush_denormals():
        done = subprocess.run(
            [sys.executable, "-c", WORKERS],
            cwd=Path(__file__).parents[2],
            env={**os.environ, "OMP_NUM_THREADS": "2"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    of_process, shares = literal_eval(done.stdout.splitlines()[-1])
    assert of_process == (True, False), "it inherits no mode"
    assert shares.pop("within a program") == 1
    assert shares.pop("program") == 0.5, "they keep flushing"
    assert shares == dict.fromkeys(("evaluate", "fit", "terms"), 0)


def test_programs_flush() -> None:
    with error_handling("run.py"):
        assert flushes()
    assert not flushes()
    with pytest.raises(SystemExit), error_handling("run.py"):
        raise ValueError("a mistake")
    assert not flushes()


PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "baddbmm_")


class DenormalFactors(TorchDispatchMode):
    """Counts the products of matrices, and names those with a factor that holds a denormal."""

    def __init__(self) -> None:
        super().__init__()
        self.products, self.slow = 0, list[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().removeprefix("aten::").split(".")[0]
        if name in PRODUCTS:
            self.products += 1
            if any(has_denormals(arg) for arg in args if isinstance(arg, Tensor)):
                self.slow.append(name)
        return func(*args, **(kwargs or {}))


def has_denormals(x: Tensor) -> bool:
    """Told by their bits: a comparison may take them for 0."""
    if x.dtype != torch.float32:
        return False
    bits = x.contiguous().view(torch.int32)
    return bool(((bits & 0x7F800000 == 0) & (bits & 0x007FFFFF != 0)).any())


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("shape", ["one head", "chain"])
def test_training_on_sharp_posteriors_multiplies_no_denormals(shape: str, flushed: bool) -> None:
    """Scores differ by 90 nats and more, and exp(-90) is denormal in float32."""
    torch.set_default_dtype(torch.float32)
    model = aligned(SHAPES[shape]).float()
    guide = attach("cascaded", model).float()
    with torch.no_grad():
        for parameter in model.alignments.parameters():
            parameter.mul_(30)
    objective = lh.Head_ELBO(analytic=True)(model, guide)
    with flush_denormals() if flushed else nullcontext(), DenormalFactors() as seen:
        objective(small_batch()).backward()
    assert seen.products > 20
    assert bool(seen.slow) is not flushed


def test_a_position_that_is_hardly_pointed_at_has_no_part_in_a_gradient() -> None:
    """Also where a thread of PyTorch's own does not flush."""
    scores = torch.tensor([[[0.0, -60.0, -70.0, -90.0, -200.0]]])
    asked = EmissionRequest(scores, torch.tensor([[True]]))
    gradient = asked.gradient(slice(None), torch.zeros_like(scores))
    assert torch.allclose(gradient[0, 0, :2], scores[0, 0, :2].exp(), rtol=1e-12)
    assert gradient[0, 0, 2:].tolist() == [0, 0, 0]
