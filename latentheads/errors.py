"""What is said in one line: errors, of unfinished work and of too little memory, and progress."""

from __future__ import annotations

import errno
import os
import re
import sys
from contextlib import suppress
from typing import Any

__all__ = ["UnfinishedError", "in_a_line", "lacks_memory", "print_message", "printable"]

NO_MEMORY = ("out of memory", "can't allocate memory", "Storage size calculation overflowed")
"""How torch says that there is too little memory; its errors are of no class of their own."""


class UnfinishedError(Exception):
    """A part of the work is not done, by no mistake of the user's."""


PLAIN = (ValueError, TypeError, FloatingPointError, OSError, UnfinishedError)
"""Errors whose words suffice; the others are named too."""


def lacks_memory(reason: BaseException) -> bool:
    """Whether there was too little memory for what was asked of the machine."""
    said = isinstance(reason, RuntimeError) and any(words in str(reason) for words in NO_MEMORY)
    return said or isinstance(reason, MemoryError)


def in_a_line(reason: BaseException) -> str:
    """The message of an error in one line; of too little memory, how much was asked for."""
    said = " ".join(str(reason).splitlines())
    if lacks_memory(reason):
        return f"out of memory{_read_size(said)}"
    if isinstance(reason, PLAIN) and said:
        return said
    return f"{type(reason).__name__}: {said}".removesuffix(": ")


def _read_size(said: str) -> str:
    """How much memory was asked for, where an error says it."""
    found = re.search(r"allocate ([\d.]+) (\w+)", said)
    if found is None:
        return ""
    number, unit = found.groups()
    size = f"{int(number):,}" if number.isdecimal() else number
    return f": {size} {unit} asked for at once"


def printable(text: str, kept: str = "\n\t") -> str:
    """A text whose control characters are written out: none of a file's name reaches a terminal.

    Args:
        text: The text.
        kept: Control characters that stay.
    """
    return "".join(c if c.isprintable() or c in kept else repr(c)[1:-1] for c in text)


def print_message(line: str, file: Any) -> None:
    """Prints a line that no work hangs on: where its reader is gone, the work goes on without.

    Args:
        line: The line.
        file: Standard output or standard error, or what stands in its place; None where it is
            closed.
    """
    if file is None:
        return
    try:
        print(printable(line), file=file, flush=True)
    except (OSError, ValueError) as reason:  # a closed file is a ValueError
        gone = getattr(reason, "errno", None) in (errno.EPIPE, errno.EIO)
        if gone or file is sys.stderr:
            _silence(file)


def _silence(file: Any) -> None:
    """Leads a stream nowhere, where what still waits for it would fail again at the end."""
    with suppress(OSError, AttributeError, ValueError), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), file.fileno())  # a notebook's has no descriptor
