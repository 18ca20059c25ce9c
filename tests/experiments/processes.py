"""The programs in processes of their own, each forked off one that has loaded the libraries."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path

CONTEXT = get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        __name__,
        "latentheads.experiments.run",
        "latentheads.plot",
        "latentheads.reading",
        "torch._dynamo",  # an optimiser loads it, and what it needs
        "torch.distributed.launcher.api",
    ]
)


def start(name: str, *words: str, said: Path, ranks: int = 1) -> ForkServerProcess:
    """Starts a program that writes all that it says to a file; many ranks as torchrun does."""
    process = CONTEXT.Process(target=_begin, args=(name, words, said, ranks))
    process.start()
    return process


def ended(process: ForkServerProcess, seconds: int = 120) -> int | None:
    """The status of a process, when it has ended."""
    process.join(seconds)
    assert process.exitcode is not None, "it still runs"
    return process.exitcode


def _begin(name: str, words: tuple[str, ...], said: Path, ranks: int) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    file = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    main = import_module(f"latentheads.experiments.{name.removesuffix('.py')}").main
    sys.exit(main(words) if ranks == 1 else _launch(main, words, ranks))


def _launch(main: Callable[..., int | None], words: tuple[str, ...], ranks: int) -> int:
    """What torchrun does, with a function where it has a program's name."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    places = {"rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0", "run_id": "test"}
    options = {"min_nodes": 1, "max_nodes": 1, "max_restarts": 0, "start_method": "fork"}
    launched = elastic_launch(LaunchConfig(nproc_per_node=ranks, **places, **options), main)
    return max(status or 0 for status in launched(words).values())
