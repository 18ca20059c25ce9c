"""The files that a program writes, tried before the work so that none of it is lost."""

from __future__ import annotations

import io
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from latentheads.experiments.cli.errors import STREAMS

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["check_file", "make_folder", "open_output"]


def check_file(out: Path, option: str = "out") -> Path:
    """Refuses a file of the results that cannot be written whole; nothing is changed.

    Args:
        out: The file.
        option: The option that names it.

    Returns:
        Where it is written: where a link leads.

    Raises:
        ValueError: It cannot.
    """
    found = Path(os.path.realpath(out))
    if not found.parent.is_dir():
        raise ValueError(f"{option}: cannot write {out}: its folder is not there")
    if out.exists() and not out.is_file():
        what = "a folder" if out.is_dir() else "no file"
        raise ValueError(f"{option}: cannot write {out}: it is {what}")
    try:
        tempfile.TemporaryFile(dir=found.parent).close()
    except OSError as reason:
        raise ValueError(f"{option}: cannot write {out}: {reason.strerror}") from reason
    return found


def make_folder(out: Path, first: str) -> Path:
    """Makes the folder of the results.

    Args:
        out: Where it is.
        first: A file that will be written into it; it is not changed.

    Raises:
        ValueError: It cannot be written.
    """
    path = out / first
    try:
        out.mkdir(parents=True, exist_ok=True)
        there = path.exists()
        path.touch()
        if not there:
            path.unlink()
    except OSError as reason:
        raise ValueError(f"out: cannot write {out}: {reason.strerror}") from reason
    return out


class _Output(io.FileIO):
    """A file whose errors name it, and are not taken for those of standard output.

    Its old content stays until something is written.

    Args:
        option: The option that names it.
        name: The file.

    Raises:
        ValueError: It cannot be written, now or later.
    """

    def __init__(self, option: str, name: str) -> None:
        self._trouble = f"--{option}: cannot write {name}"
        self._emptied = False
        try:
            super().__init__(name, "a")
        except OSError as reason:
            raise ValueError(f"{self._trouble}: {reason.strerror}") from reason
        for stream in STREAMS:
            if _leads_to(stream, self.fileno()):
                self.close()
                raise ValueError(f"{self._trouble}: it is {STREAMS[stream]} too")

    def empty(self) -> None:
        """Removes its old content, once."""
        if not self._emptied:
            self._emptied = True
            with suppress(OSError):  # what is no file on a disk holds nothing
                self.truncate(0)

    def write(self, data: ReadableBuffer, /) -> int:
        """Writes some of the bytes; a reader that goes away is no trouble of the file."""
        self.empty()
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as reason:
            raise ValueError(f"{self._trouble}: {reason.strerror}") from reason


def _leads_to(stream: str, descriptor: int) -> bool:
    """Whether a standard stream reads or writes the same file on a disk."""
    try:
        there = os.fstat(getattr(sys, stream).fileno())
    except (AttributeError, OSError, ValueError):  # it is closed, or none of the system's
        return False
    return stat.S_ISREG(there.st_mode) and os.path.samestat(there, os.fstat(descriptor))


@contextmanager
def open_output(option: str, name: str | None) -> Iterator[TextIO | None]:
    """Opens a file for what is written beside standard output, where one is asked for.

    Work that fails before anything is written leaves the file as it was.

    Args:
        option: The option that names it.
        name: The file; None: none is asked for.

    Raises:
        ValueError: It cannot be written; also where writing it or flushing it fails later.
    """
    if name is None:
        yield None
        return
    output = _Output(option, name)
    file = io.TextIOWrapper(io.BufferedWriter(output), encoding="utf-8")
    try:
        yield file
    except BaseException:
        with suppress(OSError, ValueError):  # what could not be written is told already
            file.close()
        raise
    output.empty()
    file.close()
