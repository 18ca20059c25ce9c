"""Denormal numbers: a processor takes a hundred times as long for them as for others.

They lie between 0 and 1.2e-38 in float32. A trained network makes many, where a posterior is sharp,
and a product of matrices that meets them is two to three times as slow.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["flush_denormals"]

SMALLEST_NORMAL = 2.0**-1022


def _are_flushed() -> bool:
    """Whether this thread takes denormal numbers for 0."""
    return SMALLEST_NORMAL / 2 == 0


@contextmanager
def flush_denormals() -> Iterator[None]:
    """Takes denormal numbers for 0 in this thread, and in the threads that it starts meanwhile.

    The mode of a thread is the floating-point mode of all its code, also of Python's own numbers.
    So behind the context, or an error in it, the mode is what it was before. Threads that PyTorch
    has started earlier keep theirs: a program that opens the context first is the fastest.
    """
    if _are_flushed():
        yield
        return
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
