"""Names of a package that are loaded when they are first used, so that an import stays cheap."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, places: Mapping[str, str], folders: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Makes ``__getattr__`` and ``__dir__`` of a package (PEP 562).

    Args:
        package: The name of the package.
        places: The module of every name, below ``latentheads``.
        folders: Modules that are public as a whole, by the name that they have here.
    """
    modules = dict(folders or {})

    def getattribute(name: str) -> Any:
        """Loads a public name when it is first used."""
        if name in modules:
            return import_module(f"latentheads.{modules[name]}")
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"latentheads.{places[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return getattribute, lambda: sorted({*places, *modules})
