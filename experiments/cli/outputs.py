"""Where a program writes: tried before the work, so that nothing is computed for nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

__all__ = ["make_folder", "open_output"]


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


@contextmanager
def open_output(option: str, name: str | None) -> Iterator[TextIO | None]:
    """Opens a file for what is written beside standard output, where one is asked for.

    Args:
        option: The option that names it.
        name: The file; None: none is asked for.

    Raises:
        ValueError: It cannot be written.
    """
    if name is None:
        yield None
        return
    try:
        file = open(name, "w", encoding="utf-8")  # noqa: SIM115, the errors of reading are others'
    except OSError as reason:
        raise ValueError(f"--{option}: cannot write {name}: {reason.strerror}") from reason
    with file:
        yield file
