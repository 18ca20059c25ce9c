"""Classes of the reader's own, named as ``module:Class`` and imported only if trusted."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Collection

from latentheads.values import shown


def import_path(own_class: type) -> str:
    """The name of a class as ``module:Class``."""
    return f"{own_class.__module__}:{own_class.__qualname__}"


def split_path(kind: str, name: str) -> str:
    """``module:Class`` from this or from ``module.Class``."""
    parts = str(name).replace(":", ".").split(".")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        raise ValueError(
            f"{kind} {shown(name)}: expected module:Class, an import path without slashes"
        )
    return f"{'.'.join(parts[:-1])}:{parts[-1]}"


def import_trusted(kind: str, base: type, name: str, trusted: Collection[str]) -> type:
    """Imports a class, and checks that it can be instantiated in place of its base class.

    Args:
        kind: What it is, for messages.
        base: The class that it extends.
        name: Its name, as ``module:Class`` or ``module.Class``.
        trusted: The classes that may be imported, as ``module:Class``.

    Raises:
        ValueError: It is not trusted, cannot be imported, or is none.
    """
    path = split_path(kind, name)
    if path not in trusted:
        raise ValueError(
            f"{kind} {shown(name)} is none of this library's, and a file may import nothing; if "
            f"the class is yours, say so: trust {path}"
        )
    module, _, class_name = path.partition(":")
    try:
        own_class = getattr(importlib.import_module(module), class_name)
    except Exception as reason:
        root = module.partition(".")[0]
        unseen = isinstance(reason, ModuleNotFoundError) and reason.name == root
        where = f"; start in the folder of {root}.py, or name it in PYTHONPATH" if unseen else ""
        message = " ".join(str(reason).split())
        raise ValueError(f"{kind} {shown(path)} cannot be imported: {message}{where}") from reason
    if not (isinstance(own_class, type) and issubclass(own_class, base)):
        raise ValueError(f"{kind} {path!r} must be a subclass of {base.__module__}.{base.__name__}")
    if inspect.isabstract(own_class):
        missing = ", ".join(sorted(getattr(own_class, "__abstractmethods__", ())))
        raise ValueError(f"{kind} {shown(path)} is abstract: it must define {missing}")
    return own_class
