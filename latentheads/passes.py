"""Contexts of passes of a network: one thread at a time, denormal numbers as 0, evaluation mode.

Pyro has one stack of effect handlers for the whole process. Two threads that run models at once
would see each other's handlers, so the second waits until the first has finished.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from threading import RLock
from typing import Any

import torch
from torch import nn

_lock = RLock()


def _renew_lock() -> None:
    """A forked process gets a free lock: the thread that held it is its parent's."""
    global _lock
    _lock = RLock()


os.register_at_fork(after_in_child=_renew_lock)


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Context that only one thread enters at a time; reentrant."""
    with _lock:
        yield


@contextmanager
def passes() -> Iterator[None]:
    """Context of passes of a network: one thread at a time, denormal numbers flushed to 0."""
    with one_at_a_time(), flush_denormals():
        yield


@contextmanager
def evaluation_mode(*modules: nn.Module) -> Iterator[None]:
    """Context of evaluation mode; restores the mode of every submodule."""
    with passes():  # first: another thread may train or evaluate the same modules
        modes = {child: child.training for module in modules for child in module.modules()}
        try:
            for module in modules:
                module.eval()
            yield
        finally:
            for child, mode in modes.items():
                child.training = mode


def uncompiled() -> Any:
    """Context that ignores ``torch.compile``: compiled code does not run hooks that came later."""
    if torch.compiler.is_compiling():  # within a compiled function, whose hooks are new
        return nullcontext()
    return torch.compiler.set_stance("force_eager")


@contextmanager
def frozen_parameters(model: nn.Module) -> Iterator[None]:
    """Context in which no parameter of a model has a gradient; they have it again afterwards."""
    with one_at_a_time():
        trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
        try:
            for parameter in trainable:
                parameter.requires_grad_(False)
            yield
        finally:
            for parameter in trainable:
                parameter.requires_grad_()


SMALLEST_NORMAL = 2.0**-1022
PARALLEL_SIZE = 2**17
"""Elements of a tensor that PyTorch processes in parallel; it does so from 2**15."""


def _are_flushed() -> bool:
    """Whether this thread flushes denormal numbers to 0."""
    return SMALLEST_NORMAL / 2 == 0


@contextmanager
def flush_denormals(in_workers: bool = False) -> Iterator[None]:
    """Context that flushes denormal numbers to 0 in this thread and in threads started within it.

    They lie between 0 and 1.2e-38 in float32, and a CPU processes them about a hundred times slower
    than others. A trained network with sharp posteriors has many of them, which makes its matrix
    products two to three times slower.

    The mode holds for all floating-point code of the thread, Python's own included, and is restored
    afterwards.

    Args:
        in_workers: Whether workers of PyTorch's thread pool that start within flush too. They do so
            until the process ends: only for a program, whose process computes nothing else. By
            default they start before, and keep the mode of the caller.
    """
    if _are_flushed():
        yield
        return
    if not in_workers:
        _start_workers()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


_IMPORTED_IN = os.getpid()


def _start_workers() -> None:
    """Starts PyTorch's thread pool: a worker has the mode of the thread that starts it."""
    # a forked process may have inherited a pool without its threads, which would be waited for
    if torch.get_num_threads() > 1 and os.getpid() == _IMPORTED_IN:
        torch.empty(PARALLEL_SIZE, device="cpu").zero_()
