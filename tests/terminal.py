"""A terminal that shows progress at once."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from latentheads.training import progress


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@contextmanager
def showing_progress() -> Iterator[io.StringIO]:
    """Context in which standard error is a terminal that shows bars from the beginning."""
    file = _Terminal()
    with mock.patch.object(sys, "stderr", file), mock.patch.object(progress, "FIRST", (0.0,)):
        yield file
