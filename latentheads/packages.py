"""Packages of an extra, which are imported where they are used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["need_package"]


def need_package(name: str) -> Any:
    """Imports a package of the extra ``speech``.

    Raises:
        ValueError: It is not installed.
    """
    try:
        return import_module(name)
    except ImportError as reason:
        raise ValueError(
            f"speech needs {name.replace('_', '-')}: pip install 'latentheads[speech]'"
        ) from reason
