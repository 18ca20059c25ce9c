"""Names of a package that are imported when they are first used, so that an import stays cheap.

The package ``lazy_loader`` does this for names of a package's own modules; here a package has names
of others too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, modules: Mapping[str, str], packages: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Makes ``__getattr__`` and ``__dir__`` of a package (PEP 562).

    They are assigned under ``if not TYPE_CHECKING``: a type checker, which reads the imports beside
    them, would take any other name for one that they return.

    Args:
        package: The name of the package.
        modules: The module of every name, below ``latentheads``.
        packages: Packages that are public as a whole, by the name that they have here.
    """
    wholes = packages or {}

    def load(name: str) -> Any:
        """Imports a public name when it is first used."""
        if name in wholes:
            return import_module(f"latentheads.{wholes[name]}")
        if name not in modules:
            message = f"module {package!r} has no attribute {name!r}"
            raise AttributeError(message, name=name, obj=sys.modules[package])
        value = getattr(import_module(f"latentheads.{modules[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted({*modules, *wholes})
