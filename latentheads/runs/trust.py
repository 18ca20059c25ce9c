"""Checks of the options that a file gives a class of the reader's own: values, and no code."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from latentheads.runs.recipes import read_hints, resolve

__all__ = ["refuse_code"]

PLAIN = (str, int, float, bool, type(None), Path)
GROUPS = (list, tuple, dict, Union, UnionType)


def refuse_code(kind: str, options: Any, path: str | None) -> None:
    """Refuses options that the parser would take for names of classes or functions to import.

    Numbers are safe. So are a text and a list where the option is annotated as such; where it has a
    default alone the parser reads a text as YAML, which may name a class.

    Args:
        kind: ``guide`` or ``prior``.
        options: Its options in a file.
        path: The import path of its class, which is trusted; None where the file does not say it.

    Raises:
        ValueError: The first that might be one.
    """
    if not isinstance(options, dict | None):
        raise ValueError(f"{kind}.init_args must be options with their values, got {options!r}")
    hints = {} if path is None else read_hints(resolve(path))
    for name, value in (options or {}).items():
        number = value is None or isinstance(value, (bool, int, float))
        if not str(name).isidentifier() or not (number or _is_plain(hints.get(name))):
            raise ValueError(
                f"{kind}.{name} {value!r} might name code: in a run folder it must be a number, "
                "or be annotated by its class as str, Path, Literal, or a list of such values"
            )


def _is_plain(annotation: Any) -> bool:
    """Whether no value of this kind is ever taken for the name of a class or a function."""
    if annotation in PLAIN or get_origin(annotation) is Literal:
        return True
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return True
    inner = [kind for kind in get_args(annotation) if kind is not ...]
    return get_origin(annotation) in GROUPS and all(map(_is_plain, inner))
