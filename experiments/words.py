"""The short words of a command line: presets, recipes, and names that stand for classes."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import yaml

from guides import GUIDES, RECIPES, Reader
from models import PRIORS, Prior

__all__ = ["DEFAULTS", "Tied", "class_path", "expand_words", "load_yaml", "name_of", "presets"]

PRESETS = Path(__file__).parent / "presets"
FLAGS = ("--overwrite", "--verbose")
DEFAULTS = {"guide": "cascaded", "prior": "independent"}
T = TypeVar("T")


def presets() -> dict[str, Path]:
    """The presets that ship with the programs."""
    return {path.stem: path for path in PRESETS.glob("*.yaml")}


class Tied(Prior):
    """Stands for the prior that has the guide's own form; resolved before anything is built."""

    def __call__(self, block: Any) -> NoReturn:
        """Is never built."""
        raise TypeError("--prior tied must be resolved first")


def expand_words(arguments: Sequence[str]) -> list[str]:
    """Turns the short words of a command line into what the parser knows.

    A recipe becomes a prior and a guide, a preset a configuration file read first, a name a class,
    a bare flag ``true``.
    """
    words = _with_names(_split_equals(arguments))
    first: list[str] = []
    rest: list[str] = []
    for place, word in enumerate(words):
        previous = words[place - 1] if place else ""
        if word in FLAGS and (place + 1 == len(words) or words[place + 1].startswith("--")):
            rest += [word, "true"]
        elif previous == "--preset":
            first += ["--config", str(_lookup("preset", word, presets()))]
            rest.append(word)
        elif previous in ("--guide", "--prior"):
            rest.append(class_path(previous[2:], word))
        elif previous == "--recipe":
            recipe = _lookup("recipe", word, RECIPES)
            if "--guide" in words or "--prior" in words:
                raise ValueError("--recipe sets both prior and guide: drop --guide and --prior")
            rest += [word, "--prior", class_path("prior", recipe.prior)]
            rest += ["--guide", class_path("guide", recipe.guide)]
        else:
            rest.append(word)
    return first + rest


def _with_names(words: list[str]) -> list[str]:
    """Names the default guide or prior before options of its own that stand alone."""
    for kind, name in DEFAULTS.items():
        lonely = any(word.startswith(f"--{kind}.") and "help" not in word for word in words)
        if lonely and not {f"--{kind}", "--recipe", "--config", "--preset"} & set(words):
            words = [f"--{kind}", name, *words]
    return words


def _split_equals(arguments: Sequence[str]) -> list[str]:
    words: list[str] = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        named = name in ("--guide", "--prior", "--recipe", "--preset") and equals
        words += [name, value] if named else [argument]
    return words


def _lookup(kind: str, name: str, table: dict[str, T]) -> T:
    if name not in table:
        raise ValueError(f"unknown {kind} {name!r}: choose from {', '.join(sorted(table))}")
    return table[name]


def class_path(kind: str, name: str) -> str:
    """The import path of a guide or prior from its name in the table or from ``module:Class``."""
    table: dict[str, type] = {**GUIDES} if kind == "guide" else {**PRIORS, "tied": Tied}
    if name in table:
        return f"{table[name].__module__}.{table[name].__qualname__}"
    if ":" not in name and "." not in name:
        own = "" if kind == "prior" else ", or module:Class for your own"
        raise ValueError(f"unknown {kind} {name!r}: choose from {', '.join(table)}{own}")
    module, _, class_name = name.replace(":", ".").rpartition(".")
    _import(kind, name, module, class_name)
    return f"{module}.{class_name}"


def _import(kind: str, name: str, module: str, class_name: str) -> None:
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = getattr(importlib.import_module(module), class_name)
    except (ImportError, AttributeError) as reason:
        raise ValueError(f"{kind} {name!r} cannot be imported: {reason}") from reason
    base = Reader if kind == "guide" else Prior
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ValueError(f"{kind} {name!r} must be a subclass of {base.__module__}.{base.__name__}")


def load_yaml(text: str) -> Any:
    """Reads YAML; in a configuration, names stand for classes as on the command line."""
    value = yaml.safe_load(text)
    if isinstance(value, dict):
        if "recipe" in value and value["recipe"] is not None:
            recipe = _lookup("recipe", value["recipe"], RECIPES)
            value = {"prior": recipe.prior, "guide": recipe.guide, **value}
        for kind in ("guide", "prior"):
            value = _named(value, kind)
    return value


def _named(value: dict[str, Any], kind: str) -> dict[str, Any]:
    given = value.get(kind)
    if isinstance(given, str):
        return {**value, kind: {"class_path": class_path(kind, given)}}
    if isinstance(given, dict) and "class_path" in given:
        return {**value, kind: {**given, "class_path": class_path(kind, given["class_path"])}}
    return value


def name_of(found: type, table: dict[str, Any]) -> str:
    """A class's name in a table, or its import path."""
    for name, known in table.items():
        if known is found:
            return name
    return f"{found.__module__}:{found.__qualname__}"
