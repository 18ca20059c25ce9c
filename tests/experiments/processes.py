"""The programs in processes of their own, each forked off one that has loaded the libraries."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from threading import Timer
from typing import BinaryIO

CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        __name__,
        "latentheads.experiments.run",
        "latentheads.contrib.plot",
        "latentheads.contrib.heads",
        "torch._dynamo",  # an optimiser loads it, and what it needs
        "torch.distributed.launcher.api",
    ]
)


def fork_off(function: Callable[..., object], *arguments: object, path: Path) -> ForkServerProcess:
    """Starts a function in a process of its own, which writes all that it says to a file."""
    process = CONTEXT.Process(target=_call, args=(function, arguments, path))
    process.start()
    return process


def start(name: str, *words: str, path: Path, ranks: int = 1) -> ForkServerProcess:
    """Starts a program that writes all that it says to a file; many ranks as torchrun does."""
    return fork_off(_run_program, name, words, ranks, path=path)


@dataclass
class Talk:
    """A program that reads and writes pipes.

    Attributes:
        process: Its process.
        given: Its standard input.
        out: Its standard output.
        said: The file of what it says on standard error.
    """

    process: ForkServerProcess
    given: BinaryIO
    out: BinaryIO
    said: Path


@contextmanager
def talking(name: str, *words: str, path: Path) -> Iterator[Talk]:
    """Starts a program that is given text, and says text, while it runs."""
    (theirs, given), (out, written) = CONTEXT.Pipe(duplex=False), CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=_talk, args=(name, words, path, theirs, written))
    process.start()
    stopper = Timer(120, process.kill)  # who reads it then reads no more, and the test fails
    stopper.start()
    for end in (theirs, written):
        end.close()
    with _file_of(given, "wb") as text, _file_of(out, "rb") as answers:
        yield Talk(process, text, answers, path)
    stopper.cancel()


def _file_of(end: Connection, mode: str) -> BinaryIO:
    """The end of a pipe as a file that holds nothing back."""
    with end:
        return os.fdopen(os.dup(end.fileno()), mode, buffering=0)


def _talk(
    name: str, words: tuple[str, ...], path: Path, given: Connection, out: Connection
) -> None:
    heed_signals()
    for descriptor, end in enumerate((given, out)):
        os.dup2(end.fileno(), descriptor)
        end.close()
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    main = import_module(f"latentheads.experiments.{name.removesuffix('.py')}").main
    sys.exit(main(words))


def heed_signals() -> None:
    """Signals end this process, also where the tests run under nohup, which ignores a hang-up."""
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def heeded(number: signal.Signals) -> Iterator[None]:
    """Here a signal is as the system delivers it, also where who started the tests ignores it."""
    before = signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(number, before)


def ended(process: ForkServerProcess, seconds: int = 120) -> int | None:
    """The status of a process, when it has ended."""
    process.join(seconds)
    assert process.exitcode is not None, "it still runs"
    return process.exitcode


def _call(function: Callable[..., object], arguments: tuple[object, ...], path: Path) -> None:
    heed_signals()
    os.environ["OMP_NUM_THREADS"] = "1"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    function(*arguments)


def _run_program(name: str, words: tuple[str, ...], ranks: int) -> None:
    main = import_module(f"latentheads.experiments.{name.removesuffix('.py')}").main
    sys.exit(main(words) if ranks == 1 else _launch(main, words, ranks))


def _launch(main: Callable[..., int | None], words: tuple[str, ...], ranks: int) -> int:
    """What torchrun does, with a function where it has a program's name."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    places = {"rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0", "run_id": "test"}
    options = {"min_nodes": 1, "max_nodes": 1, "max_restarts": 0, "start_method": "fork"}
    launched = elastic_launch(LaunchConfig(nproc_per_node=ranks, **places, **options), main)
    return max(status or 0 for status in launched(words).values())
