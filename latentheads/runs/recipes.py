"""Recipes, priors and guides by name: which class a name stands for, and which a file may name."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NoReturn, get_type_hints

from latentheads.checks import check_known
from latentheads.guides import GUIDES, RECIPES, ModelGuide
from latentheads.models import PRIORS, Prior
from latentheads.selection.strategies import STRATEGIES, Strategy
from latentheads.values import KINDS, convert

__all__ = [
    "ALIGNED",
    "DEFAULTS",
    "LOGITS",
    "NAMED",
    "OF_LOGITS",
    "OfGuide",
    "check_untyped",
    "class_path",
    "find_recipe",
    "fit_options",
    "name_of",
    "own_options",
    "path_of",
    "read_hints",
    "refuse_other_kinds",
    "resolve",
    "split_law",
    "split_path",
]

DEFAULTS = {"guide": "cascaded", "prior": "delta"}
"""A guide alone is of alignments: the logits of attention heads have no noise."""

ALIGNED = "+alignments"
"""The ending of a guide's name in a recipe of alignments."""

LOGITS = "independent"
"""The prior that a guide of logits alone is trained against, where no other is named."""

OF_LOGITS = {"alignments": 0}
"""Options that go with a recipe or a prior: both are of logits, as those of the papers."""

BASES: dict[str, type] = {"guide": ModelGuide, "prior": Prior}


class OfGuide(Prior):
    """Stands for the prior that has the guide's own form; resolved before anything is built."""

    def __call__(self, block: Any) -> NoReturn:
        """Is never built."""
        raise TypeError("prior tied must be resolved first")


NAMED: dict[str, dict[str, type]] = {"guide": {**GUIDES}, "prior": {**PRIORS, "tied": OfGuide}}
"""The classes that have a name, of each kind."""


def fit_options(kind: str, name: str, known: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a class as its annotations want them.

    Raises:
        ValueError: It has no such option, needs another one, or wants another kind of value.
    """
    options = {option.name: option for option in own_options(known)}
    for option in given:
        if option not in options:
            has = ", ".join(options) or "none"
            raise ValueError(f"{kind} {name!r} has no option {option!r}; it has {has}")
    for each in options.values():
        if each.default is each.empty and each.name not in given:
            raise ValueError(f"{kind} {name!r} needs {kind}.{each.name}")
    hints = read_hints(known)
    found = {n: convert(f"{kind}.{n}", hints.get(n, Any), value) for n, value in given.items()}
    check_untyped(kind, known, found)
    return found


def read_hints(known: type) -> dict[str, Any]:
    """The annotations of a class's options; none where they cannot be read."""
    try:
        return get_type_hints(known.__init__)  # type: ignore[misc]
    except (NameError, TypeError):
        return {}


def split_law(name: str) -> tuple[str, Strategy | None]:
    """``cascaded+group`` is ``cascaded`` and selects its heads by ``group``."""
    first, _, last = name.rpartition("+")
    return (first, last) if last in STRATEGIES else (name, None)  # type: ignore[return-value]


def find_recipe(name: str) -> dict[str, Any]:
    """The names of prior and guide that a recipe stands for, and whether there are alignments.

    ``GUIDE+alignments`` is what the guide alone stands for.
    """
    guide, plus, _ = name.partition(ALIGNED)
    if plus and name.endswith(ALIGNED) and guide in GUIDES:
        return {"prior": DEFAULTS["prior"], "guide": guide}
    if name not in RECIPES:
        refuse_other_kinds("recipe", name)
        _refuse_law("recipe", name)
    check_known("recipe", name, sorted(RECIPES), more=f", or GUIDE{ALIGNED}")
    return {**OF_LOGITS, **RECIPES[name]._asdict()}


def refuse_other_kinds(kind: str, name: str) -> None:
    """Refuses a name of another kind, and tells how to ask for that."""
    kinds: dict[str, Mapping[str, Any]] = {"recipe": RECIPES, **NAMED}
    for other, table in kinds.items():
        if name in table:
            raise ValueError(f"{name!r} is no {kind} but a {other}: use {other} {name}")


def _refuse_law(kind: str, name: str) -> None:
    """Refuses a law of selection that there is none of, behind a plus."""
    first, plus, law = name.rpartition("+")
    if plus and law in STRATEGIES:
        raise ValueError(
            f"{kind} {name!r}: one selection strategy stands behind a recipe or a guide"
        )
    if plus and f"+{law}" != ALIGNED and first not in STRATEGIES:
        raise ValueError(
            f"unknown selection strategy {law!r} in {kind} {name!r}: "
            f"choose from {', '.join(STRATEGIES)}"
        )


def class_path(kind: str, name: str, trusted: Collection[str] | None = None) -> str:
    """The import path of a guide or prior from its name in the table or from ``module:Class``.

    Args:
        kind: ``guide`` or ``prior``.
        name: What it is called.
        trusted: Where a file says the name, the import paths of classes of the reader's own that it
            may mean; nothing else is imported. None where the reader himself says it.

    Raises:
        ValueError: There is none of that name, or a file may not say it.
    """
    table = NAMED[kind]
    if name in table:
        return path_of(table[name])
    if ":" not in name and "." not in name:
        refuse_other_kinds(kind, name)
        if kind == "guide":
            _refuse_law(kind, name)
        laws = f", {', '.join(STRATEGIES)}" if kind == "guide" else ""
        check_known(kind, name, table, more=f"{laws}, or module:Class for your own")
    path = split_path(kind, name)
    if path in map(path_of, table.values()):
        return path
    if trusted is not None and path not in trusted:
        own = ":".join(path.rsplit(".", 1))
        raise ValueError(
            f"{kind} {name!r} is none of this library's, and a file may import nothing; if the "
            f"class is yours, say so: trusted {own}"
        )
    _import_class(kind, name, *path.rsplit(".", 1))
    return path


def path_of(found: type) -> str:
    """The import path of a class."""
    return f"{found.__module__}.{found.__qualname__}"


def split_path(kind: str, name: str) -> str:
    """The import path that ``module:Class`` stands for."""
    parts = name.replace(":", ".").split(".")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        raise ValueError(f"{kind} {name!r}: expected module:Class, an import path without slashes")
    return ".".join(parts)


def _import_class(kind: str, name: str, module: str, class_name: str) -> None:
    """Imports a class of the reader's own, and checks that it is a guide or a prior."""
    try:
        found = getattr(importlib.import_module(module), class_name)
    except Exception as reason:
        root = module.partition(".")[0]
        unseen = isinstance(reason, ModuleNotFoundError) and reason.name == root
        where = f"; start in the folder of {root}.py, or name it in PYTHONPATH" if unseen else ""
        said = " ".join(str(reason).split())
        raise ValueError(f"{kind} {name!r} cannot be imported: {said}{where}") from reason
    base = BASES[kind]
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ValueError(f"{kind} {name!r} must be a subclass of {base.__module__}.{base.__name__}")
    if inspect.isabstract(found):
        missing = ", ".join(sorted(getattr(found, "__abstractmethods__", ())))
        raise ValueError(f"{kind} {name!r} is abstract: it must define {missing}")
    own = own_options(found)
    if kind == "guide" and own and own[0] == next(iter(_parameters(found))):
        raise ValueError(
            f"guide {name!r}: its first argument must be called model, got {own[0].name}"
        )
    for option in own:
        if option.annotation is option.empty and option.default is option.empty:
            raise ValueError(
                f"{kind} {name!r}: its option {option.name!r} needs a type or a default, as "
                f"{option.name}: float = 1.0"
            )


def own_options(found: type) -> list[inspect.Parameter]:
    """The options that a guide or a prior has beside the model."""
    named = (
        each
        for each in _parameters(found)
        if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    )
    return [each for each in named if each.name != "model"]


def _parameters(found: type) -> Iterable[inspect.Parameter]:
    return inspect.signature(found).parameters.values()


def check_untyped(kind: str, found: type, given: Mapping[str, Any]) -> None:
    """Refuses a value that is not like the default of an option without a type.

    Args:
        kind: Guide or prior.
        found: Its class.
        given: Its options.
    """
    for option in own_options(found):
        like, value = type(option.default), given.get(option.name, option.default)
        simple = option.annotation is option.empty and like in (bool, int, float, str)
        if simple and type(value) is not like and (like, type(value)) != (float, int):
            raise ValueError(f"{kind}.{option.name} must be {KINDS[like]}, got {value}")


def resolve(path: str) -> Any:
    """The class at an import path."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def name_of(found: type, table: Mapping[str, type]) -> str:
    """A class's name in a table, or its import path."""
    for name, known in table.items():
        if known is found:
            return name
    return f"{found.__module__}:{found.__qualname__}"
