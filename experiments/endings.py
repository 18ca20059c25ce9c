"""How a program ends that cannot go on: one line on standard error, and a status."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

__all__ = ["ending", "leave", "streaming"]

MISTAKES = (ValueError, TypeError)


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
        leave(program, f"error: {_line(mistake)}")
    except (FloatingPointError, OSError) as reason:
        leave(program, "; ".join([f"error: {reason}", *([trouble] if trouble else [])]), 1)
    except KeyboardInterrupt:
        leave(program, "; ".join(["stopped", *([stopped] if stopped else [])]), 130)


def _line(mistake: Exception) -> str:
    return " ".join(str(mistake).splitlines())


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
    except OSError as trouble:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(trouble, BrokenPipeError):
            sys.exit(141)
        leave(program, f"error: {trouble.strerror}", 1)
    except KeyboardInterrupt:
        sys.exit(130)
