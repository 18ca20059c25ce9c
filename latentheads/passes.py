"""What holds around passes of a network: one thread at a time, and denormal numbers count as 0.

Pyro's handlers are one stack for the whole process. Two threads that run models at once would find
each other's handlers there, so the second waits until the first has ended.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

from latentheads.denormals import flush_denormals

__all__ = ["one_at_a_time", "passes"]


class _Lock:
    """Held by the thread that runs a model; a forked process begins with one that is free."""

    def __init__(self) -> None:
        self.renew()
        os.register_at_fork(after_in_child=self.renew)

    def renew(self) -> None:
        self.lock = RLock()


_LOCK = _Lock()


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Waits until no other thread is in such a context; the same thread may open it again."""
    with _LOCK.lock:
        yield


@contextmanager
def passes() -> Iterator[None]:
    """Around passes of a network: no other thread runs one, and denormal numbers count as 0."""
    with one_at_a_time(), flush_denormals():
        yield
