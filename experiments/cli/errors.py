"""How a program ends that cannot go on: one line on standard error, and a status."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

__all__ = ["Losses", "UnfinishedError", "ending", "in_a_line", "lacks_memory", "leave", "streaming"]

MISTAKES = (ValueError, TypeError)

NO_MEMORY = ("out of memory", "can't allocate memory", "Storage size calculation overflowed")
"""How torch says that there is too little memory; its errors are of no class of their own."""


class UnfinishedError(Exception):
    """A part of the work is not done, by no mistake of the user's."""


PLAIN = (*MISTAKES, FloatingPointError, OSError, UnfinishedError)
"""Errors whose words suffice; the others are named too."""


def leave(program: str, said: object, status: int = 2) -> NoReturn:
    """Prints one line and exits; what a file says in it cannot command a terminal."""
    line = "".join(each if each.isprintable() else repr(each)[1:-1] for each in str(said))
    print(f"{program}: {line}", file=sys.stderr)
    sys.exit(status)


@contextmanager
def ending(
    program: str,
    trouble: str = "",
    stopped: str = "",
    mistakes: tuple[type[Exception], ...] = MISTAKES,
) -> Iterator[None]:
    """Ends a program whose work fails: with status 2 by the user's mistake, 1 by trouble.

    Args:
        program: Its name.
        trouble: What is left of the work after trouble.
        stopped: What is left of it after Ctrl-C, which gives status 130.
        mistakes: What is raised where the user is mistaken.
    """
    try:
        yield
    except mistakes as mistake:
        leave(program, f"error: {in_a_line(mistake)}")
    except (FloatingPointError, OSError, MemoryError, RuntimeError, UnfinishedError) as reason:
        if isinstance(reason, RuntimeError) and not lacks_memory(reason):
            raise
        said = f"error: {in_a_line(reason)}"
        leave(program, "; ".join([said, *([trouble] if trouble else [])]), 1)
    except KeyboardInterrupt:
        leave(program, "; ".join(["stopped", *([stopped] if stopped else [])]), 130)


def lacks_memory(reason: BaseException) -> bool:
    """Whether there was too little memory for what was asked of the machine."""
    said = isinstance(reason, RuntimeError) and any(words in str(reason) for words in NO_MEMORY)
    return said or isinstance(reason, MemoryError)


def in_a_line(reason: BaseException) -> str:
    """What an error says, in one line; of too little memory, how much was asked for."""
    said = " ".join(str(reason).splitlines())
    if lacks_memory(reason):
        return f"out of memory{_asked_for(said)}"
    if isinstance(reason, PLAIN) and said:
        return said
    return f"{type(reason).__name__}: {said}".removesuffix(": ")


def _asked_for(said: str) -> str:
    """How much memory was asked for, where an error says it."""
    found = re.search(r"allocate ([\d.]+) (\w+)", said)
    if found is None:
        return ""
    number, unit = found.groups()
    size = f"{int(number):,}" if number.isdecimal() else number
    return f": {size} {unit} asked for at once"


@contextmanager
def streaming(program: str) -> Iterator[None]:
    """Ends a program that writes to standard output where it cannot; a mistake has status 1.

    A reader that goes away ends it in silence, as the shell's own tools do.

    Args:
        program: Its name.
    """
    try:
        yield
    except ValueError as mistake:
        leave(program, f"error: {mistake}", 1)
    except (MemoryError, RuntimeError) as reason:
        if not lacks_memory(reason):
            raise
        leave(program, f"error: {in_a_line(reason)}", 1)
    except OSError as trouble:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(trouble, BrokenPipeError):
            sys.exit(141)
        leave(program, f"error: {trouble.strerror}", 1)
    except KeyboardInterrupt:
        sys.exit(130)


class Losses:
    """Names on standard error what a program leaves empty, and goes on.

    Args:
        program: Its name.
        unit: What is lost, such as a line.

    Attributes:
        number: How many were lost.
        before: How many came before those that places are counted in.
    """

    def __init__(self, program: str, unit: str) -> None:
        self.program, self.unit = program, unit
        self.number = self.before = 0

    def note(self, place: int, why: str) -> None:
        """Names one, by its place from 0."""
        self.number += 1
        name = f"{self.unit} {self.before + place + 1} of the input"
        print(f"{self.program}: {name} stays empty: {why}", file=sys.stderr)
