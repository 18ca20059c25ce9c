"""A terminal that shows progress at once."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from latentheads import console


class Terminal(io.StringIO):
    """Standard error of a terminal."""

    def isatty(self) -> bool:
        return True


@contextmanager
def showing_progress() -> Iterator[io.StringIO]:
    """Context in which standard error is a terminal that shows bars from the beginning."""
    file = Terminal()
    with mock.patch.object(sys, "stderr", file), mock.patch.object(console, "DELAY", 0.0):
        yield file
