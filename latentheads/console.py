"""Lines on standard output and standard error, which may be closed, and bars of progress."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, TypeVar

from tqdm import tqdm

Item = TypeVar("Item")

DELAY = 5.0
"""Seconds before a bar is shown."""


_SHOWN: ContextVar[bool] = ContextVar("shown", default=True)


@contextmanager
def bars_shown(are_shown: bool) -> Iterator[None]:
    """Context in which `show_progress` shows no bar, where ``are_shown`` is false."""
    token = _SHOWN.set(are_shown)
    try:
        yield
    finally:
        _SHOWN.reset(token)


def show_progress(
    items: Iterable[Item], what: str, unit: str, total: int | None = None
) -> Iterable[Item]:
    """The items; a terminal shows how many are done, if they take longer than ``DELAY``."""
    disable = None if _SHOWN.get() else True  # None: where standard error is no terminal
    options = {"leave": False, "dynamic_ncols": True, "disable": disable, "delay": DELAY}
    shown: Iterable[Item] = tqdm(items, what, total, unit=unit, **options)
    return shown


def print_message(line: str, file: Any) -> None:
    """Prints a line; if the stream is closed, the line is dropped and the work goes on."""
    if file is None:
        return
    try:
        # one write: Ctrl-C between two would leave a line without its end
        print(f"{line}\n", end="", file=file, flush=True)
    except (OSError, ValueError) as error:  # a closed file is a ValueError
        is_closed = getattr(error, "errno", None) in (errno.EPIPE, errno.EIO)
        if is_closed or file is sys.stderr:
            _silence(file)


def _silence(file: Any) -> None:
    """Redirects a stream to the null device, so that its buffer does not fail again at exit."""
    with suppress(OSError, AttributeError, ValueError), open(os.devnull, "w") as null_device:
        os.dup2(null_device.fileno(), file.fileno())  # a notebook's has no descriptor
