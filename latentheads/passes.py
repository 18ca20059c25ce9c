"""Context of passes of a network: one thread at a time, and denormal numbers are flushed to 0.

Pyro has one stack of effect handlers for the whole process. Two threads that run models at once
would see each other's handlers, so the second waits until the first has finished.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

from torch import nn

from latentheads.denormals import flush_denormals


class _Lock:
    """A lock that is held by the thread that runs a model; a forked process gets a free one."""

    def __init__(self) -> None:
        self.renew()
        os.register_at_fork(after_in_child=self.renew)

    def renew(self) -> None:
        self.lock = RLock()


_LOCK = _Lock()


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Context that only one thread enters at a time; reentrant."""
    with _LOCK.lock:
        yield


@contextmanager
def passes() -> Iterator[None]:
    """Context of passes of a network: one thread at a time, denormal numbers flushed to 0."""
    with one_at_a_time(), flush_denormals():
        yield


@contextmanager
def frozen_parameters(model: nn.Module) -> Iterator[None]:
    """Context in which no parameter of a model has a gradient; they have it again afterwards."""
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trainable:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trainable:
            parameter.requires_grad_()
