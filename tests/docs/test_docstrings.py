"""Every public method has a docstring, or overrides one that has."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path

from tests.imports import LIBRARY, find_modules

KINDS = (property, classmethod, staticmethod, type(lambda: None))


def test_every_public_method_is_documented() -> None:
    modules = map(import_module, find_modules(Path(__file__).parents[2], LIBRARY))
    classes = {
        kind for module in modules for kind in vars(module).values() if isinstance(kind, type)
    }
    missing = [
        f"{kind.__module__}.{kind.__qualname__}.{name}"
        for kind in classes
        if kind.__module__.startswith("latentheads.") and not kind.__name__.startswith("_")
        for name, member in vars(kind).items()
        if isinstance(member, KINDS) and not name.startswith("_")
        if not inspect.getdoc(getattr(kind, name))
    ]
    assert missing == []
