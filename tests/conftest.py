"""Every test: float64, one thread, seeded, Pyro's validation on, nothing left behind."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from unittest import mock

import pyro
import pytest
import torch
from hypothesis import HealthCheck, settings

from latentheads.batch import Batch
from tests.experiments.programs import unpainted
from tests.second_device import There, gpu, second_device
from tests.tiny import NoiseTape, small_batch
from tests.typechecking import begin_test

torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # the processes that a test starts round as it does
# submitit configures logging when it is imported, which closes all handlers of the process; absl's,
# of rouge-score, closes what pytest captures standard error with.
os.environ.setdefault("SUBMITIT_LOG_LEVEL", "NOCONFIG")
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")  # where others compute too, what is slow is not wrong
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
gc.set_threshold(100_000, 50, 100)  # the libraries leave little to collect, and much to look at


def pytest_collection_finish() -> None:
    """What the libraries and the tests have made by now stays: no need to look at it again."""
    gc.freeze()


def pytest_sessionfinish() -> None:
    """One look at the rest is enough: pytest takes five, and Python one more."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="where tests marked device compute: a second device of the CPU's, or a GPU",
    )


@pytest.fixture(scope="session", autouse=True)
def figures_without_paint() -> Iterator[None]:
    """Painting takes longer than a tiny run; a test of a picture itself asks for ``painted``."""
    with unpainted():
        yield


@pytest.fixture(scope="session", autouse=True)
def files_without_a_wait() -> Iterator[None]:
    """No test outlives a crash of the machine: none waits until the disk has what was written."""
    with mock.patch.object(os, "fsync", return_value=None):
        yield


@pytest.fixture(autouse=True)
def reproducible() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.default_generator.manual_seed(0)  # manual_seed(0) keeps a trace of the stack
    begin_test()
    pyro.clear_param_store()
    with pyro.validation_enabled(True):
        yield
    torch.set_default_dtype(before)


@pytest.fixture
def there(request: pytest.FixtureRequest) -> There:
    """Opens the device: a GPU where one is asked for."""
    return gpu if request.config.getoption("--device") == "cuda" else second_device


@pytest.fixture
def as_the_programs_do() -> None:
    """Float32, as a user has it."""
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def batch() -> Batch:
    return small_batch()


@pytest.fixture
def tape(monkeypatch: pytest.MonkeyPatch) -> NoiseTape:
    recorded = NoiseTape()
    monkeypatch.setattr("latentheads.distributions.heads.standard_normal", recorded)
    return recorded
