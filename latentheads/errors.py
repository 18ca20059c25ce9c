"""Messages in one line: errors, also of unfinished work and of too little memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

OUT_OF_MEMORY_TEXTS = (
    "out of memory",
    "can't allocate memory",
    "Storage size calculation overflowed",
)
"""Texts of torch's errors of too little memory, which have no common class."""

MAX_ECHO = 80
"""Most characters of a user's text in a message."""


class UnfinishedError(Exception):
    """Part of the work could not be finished, without a mistake of the user."""


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Puts what a ValueError is about in front of its message."""
    try:
        yield
    except ValueError as reason:
        raise ValueError(f"{what}: {reason}") from reason


SELF_EXPLANATORY = (ValueError, TypeError, FloatingPointError, OSError, UnfinishedError)
"""Errors whose message suffices; for others the class is named too."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that there was too little memory."""
    from_torch = isinstance(error, RuntimeError) and any(
        text in str(error) for text in OUT_OF_MEMORY_TEXTS
    )
    return from_torch or isinstance(error, MemoryError)


def one_line_message(error: BaseException) -> str:
    """The message of an error in one line; if out of memory, the size of the allocation."""
    message = " ".join(str(error).splitlines())
    if is_out_of_memory(error):
        return f"out of memory{_allocation_size(message)}"
    if isinstance(error, SELF_EXPLANATORY) and message:
        return message
    return f"{type(error).__name__}: {message}".removesuffix(": ")


def shown(value: Any) -> str:
    """A value in a one-line message; a class by its name, what has no short text by its type."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    text = repr(value)
    if len(text.splitlines()) > 1 or " object at 0x" in text:
        return type(value).__name__
    return shorten(text)


def describe_change(name: str, there: Any, here: Any) -> str:
    """A value of an option in a folder, and the one that is wanted; an empty text is quoted."""
    old, new = (repr(value) if value == "" else value for value in (there, here))
    return f"{name} {old} there, {new} here"


def _allocation_size(message: str) -> str:
    """The size of the failed allocation, if the error contains it."""
    match = re.search(r"allocate ([\d.]+) (\w+)", message)
    if match is None:
        return ""
    number, unit = match.groups()
    size = f"{int(number):,}" if number.isdecimal() else number
    return f": {size} {unit} asked for at once"


def shorten(text: str, most: int = MAX_ECHO) -> str:
    """A text of a user's file or option for a message: what is longer is cut, which dots show."""
    return text if len(text) <= most else f"{text[:most]} ..."
