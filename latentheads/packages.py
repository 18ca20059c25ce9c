"""Packages that an extra of the library installs, imported where they are used."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

__all__ = ["need_speech_package", "need_transformers"]


def need_speech_package(name: str) -> ModuleType:
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


def need_transformers() -> ModuleType:
    """Imports ``transformers``.

    Raises:
        ImportError: It is not installed.
    """
    try:
        return import_module("transformers")
    except ImportError as reason:
        raise ImportError(
            "transformers is missing: pip install 'latentheads[transformers]'"
        ) from reason
