"""The short words of a command line: presets, recipes, and names that stand for classes."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from latentheads.files import parse_yaml
from latentheads.guides import GUIDES, RECIPES, ModelGuide
from latentheads.models import PRIORS, Prior
from latentheads.names import CHAINS
from latentheads.runs.trust import refuse_code
from latentheads.selection.laws import LAWS, Law

__all__ = [
    "DEFAULTS",
    "NAMED",
    "Tied",
    "chains_of",
    "check_untyped",
    "class_path",
    "expand_words",
    "load_yaml",
    "name_of",
    "named_classes",
    "own_options",
    "presets",
    "resolve",
    "split_law",
    "without",
]

HERE = os.getcwd()
"""Where the program was started: the parser changes folders while it reads a file."""

PRESETS = Path(__file__).parents[1] / "presets"
JOINED = ("--mixers", "--windows", "--ngram_width")
"""Options that may be said for each stack on its own."""

INSTEAD = {"--tasks": "--task_sizes", "--sentences": "--task_sizes", "--first": "--task_sizes"}
"""Options that take the place of what a file says by another option."""

FLAGS = ("--overwrite", "--verbose", "--tensorboard")
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


NAMED: dict[str, dict[str, type]] = {"guide": {**GUIDES}, "prior": {**PRIORS, "tied": Tied}}
"""The classes that have a name, of each kind."""


def expand_words(arguments: Sequence[str]) -> list[str]:
    """Turns the short words of a command line into what the parser knows.

    A recipe becomes a prior and a guide, a preset a configuration file, a name a class, a bare flag
    ``true``, an option said for each stack one text; a law of selection behind a ``+`` becomes
    ``--select``. Files come first, so that any other word changes what they say; then the names of
    guide and prior, then everything else, their own options included.
    """
    words = _split_equals(arguments)
    if "--recipe" in words and {"--guide", "--prior"} & set(words):
        raise ValueError("--recipe sets both prior and guide: drop --guide and --prior")
    files: list[str] = []
    names: list[str] = []
    rest: list[str] = []
    parts: dict[str, list[str]] = {}
    pairs = pairwise([*words, "--"])
    for word, following in pairs:
        if word in FLAGS and following.startswith("--"):
            rest += [word, "true"]
        elif word in JOINED and following != "--":
            next(pairs, None)
            parts.setdefault(word, []).append(following)
        elif word in SHORT and following != "--":
            next(pairs, None)
            (files if word in ("--config", "--preset") else names).extend(
                _expanded(word, following)
            )
        else:
            rest.append(word)
    joined = [word for name, said in parts.items() for word in (name, " ".join(said))]
    return [*_defaults(words), *files, *names, *_replaced(words), *rest, *joined]


def _replaced(words: list[str]) -> list[str]:
    """Empties what files may say by another option than the command line does."""
    said = {word.partition("=")[0] for word in words}
    others = {other for word, other in INSTEAD.items() if word in said}
    return [f"{other}=[]" for other in others - said]


SHORT = ("--config", "--preset", "--recipe", "--guide", "--prior", "--guide.help", "--prior.help")


def _expanded(word: str, value: str) -> list[str]:
    if word == "--config":
        return [word, value]
    if word == "--preset":
        return ["--config", str(_lookup("preset", value, presets()))]
    value, select = _selecting(word, value)
    if word == "--recipe":
        recipe = _lookup("recipe", value, RECIPES)
        prior, guide = class_path("prior", recipe.prior), class_path("guide", recipe.guide)
        return ["--prior", prior, "--guide", guide, *select]
    return [word, class_path(word[2:7], value), *select]


def split_law(name: str) -> tuple[str, Law | None]:
    """``cascaded+group`` is ``cascaded`` and selects its heads by ``group``."""
    first, _, last = name.rpartition("+")
    return (first, last) if last in LAWS else (name, None)


def _selecting(word: str, value: str) -> tuple[str, list[str]]:
    """A guide or recipe without its law of selection, and the words that say the law."""
    if word not in ("--guide", "--recipe"):
        return value, []
    name, law = split_law(value)
    if word == "--recipe" and not name:
        raise ValueError(f"recipe {value!r} is a law of selection alone: use --guide {law}")
    return name or "tied", ["--select", law or "none"]


def _defaults(words: list[str]) -> list[str]:
    """Names the default guide or prior where options of its own stand and nothing names one."""
    found = []
    for kind, name in DEFAULTS.items():
        own = any(word.startswith(f"--{kind}.") and "help" not in word for word in words)
        if own and not {f"--{kind}", "--recipe"} & set(words):
            found += [f"--{kind}", class_path(kind, name)]
    selects = any(word == "--guide" and not split_law(name)[0] for word, name in pairwise(words))
    if selects and not {"--prior", "--recipe"} & set(words):
        found += ["--prior", class_path("prior", "delta")]
    return found


def _split_equals(arguments: Sequence[str]) -> list[str]:
    words: list[str] = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        named = name in (*SHORT, *JOINED) and equals
        words += [name, value] if named else [argument]
    return words


def without(words: Sequence[str], names: Sequence[str]) -> list[str]:
    """A command line without some options and their values."""
    kept: list[str] = []
    skip = False
    for word in words:
        name, equals, _ = word.partition("=")
        if not skip and name not in names:
            kept.append(word)
        skip = not skip and name in names and not equals
    return kept


def _lookup(kind: str, name: str, table: dict[str, T]) -> T:
    if name not in table:
        _refuse_other_kinds(kind, name)
        raise ValueError(f"unknown {kind} {name!r}: choose from {', '.join(sorted(table))}")
    return table[name]


def _refuse_other_kinds(kind: str, name: str) -> None:
    """Says of a name that stands for something else, what it is and how to ask for it."""
    kinds: dict[str, Mapping[str, Any]] = {"recipe": RECIPES, **NAMED, "preset": presets()}
    for other, table in kinds.items():
        if name in table:
            raise ValueError(f"{name!r} is no {kind} but a {other}: use --{other} {name}")


def chains_of(text: str) -> tuple[str, ...] | None:
    """The chains that a word names; None for all."""
    if text == "all":
        return None
    chains = () if text == "none" else tuple(text.split(","))
    for chain in chains:
        if chain not in CHAINS:
            raise ValueError(f"unknown chain {chain!r}: choose from all, none, {', '.join(CHAINS)}")
    return chains


def named_classes(arguments: Sequence[str]) -> frozenset[str]:
    """The import paths of classes that a command line itself names: those that its files may name.

    Args:
        arguments: The words after the program's name.

    Raises:
        ValueError: ``--trust`` names something else.
    """
    found: set[str] = set()
    for word, value in pairwise(_split_equals(arguments)):
        if word in ("--guide", "--prior"):
            found.add(split_law(value)[0].replace(":", "."))
        elif word == "--trust":
            found.update(_split_path("trust", name) for name in value.split(","))
    return frozenset(found)


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
        return _path_of(table[name])
    if ":" not in name and "." not in name:
        _refuse_other_kinds(kind, name)
        own = "" if kind == "prior" else ", or module:Class for your own"
        raise ValueError(f"unknown {kind} {name!r}: choose from {', '.join(table)}{own}")
    path = _split_path(kind, name)
    if path in map(_path_of, table.values()):
        return path
    if trusted is not None and path not in trusted:
        own = ":".join(path.rsplit(".", 1))
        raise ValueError(
            f"{kind} {name!r} is none of this library's, and a file may import nothing; if the "
            f"class is yours, say so: --trust {own}"
        )
    _import(kind, name, *path.rsplit(".", 1))
    return path


def _path_of(found: type) -> str:
    return f"{found.__module__}.{found.__qualname__}"


def _split_path(kind: str, name: str) -> str:
    """The import path that ``module:Class`` stands for."""
    parts = name.replace(":", ".").split(".")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        raise ValueError(f"{kind} {name!r}: expected module:Class, an import path without slashes")
    return ".".join(parts)


def _import(kind: str, name: str, module: str, class_name: str) -> None:
    if HERE not in sys.path:
        sys.path.insert(0, HERE)
    try:
        found = getattr(importlib.import_module(module), class_name)
    except Exception as reason:
        raise ValueError(
            f"{kind} {name!r} cannot be imported from {HERE} or PYTHONPATH: {reason}"
        ) from reason
    base = ModelGuide if kind == "guide" else Prior
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ValueError(f"{kind} {name!r} must be a subclass of {base.__module__}.{base.__name__}")
    if inspect.isabstract(found):
        missing = ", ".join(sorted(found.__abstractmethods__))
        raise ValueError(f"{kind} {name!r} is abstract: it must define {missing}")
    for option in own_options(found):
        if option.annotation is option.empty and option.default is option.empty:
            raise ValueError(
                f"{kind} {name!r}: its option {option.name!r} needs a type or a default, as "
                f"{option.name}: float = 1.0"
            )


def own_options(found: type) -> list[inspect.Parameter]:
    """The options that a guide or a prior has on the command line."""
    return [each for name, each in inspect.signature(found).parameters.items() if name != "model"]


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
            raise ValueError(f"--{kind}.{option.name}: expected {like.__name__}, got {value}")


def resolve(path: str) -> Any:
    """The class at an import path."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def load_yaml(text: str, trusted: Collection[str] = ()) -> Any:
    """Reads YAML; in a configuration, names stand for classes as on the command line.

    A configuration may come from anywhere: it names no other file, and no class that is neither
    the library's nor trusted.

    Args:
        text: The YAML.
        trusted: As for :func:`class_path`.
    """
    value = parse_yaml(text)
    if isinstance(value, dict):
        value = {name: said for name, said in value.items() if said is not None}
        _refuse_keys(value)
        if (named := value.pop("recipe", None)) is not None:
            if {"prior", "guide"} & set(value):
                raise ValueError("recipe sets both prior and guide: drop prior and guide")
            named, law = split_law(str(named))
            value |= {} if law is None else {"select": law}
            recipe = _lookup("recipe", named, RECIPES)
            value = {"prior": recipe.prior, "guide": recipe.guide, **value}
        for kind in ("guide", "prior"):
            value = _named(value, kind, trusted)
    return value


def _refuse_keys(value: dict[str, Any]) -> None:
    """Refuses what is the reader's to say, and what would reach past a group of options."""
    for name, given in (("preset", "NAME"), ("config", "FILE"), ("trust", "module:Class")):
        if name in value:
            raise ValueError(f"{name} belongs on the command line: --{name} {given}")
    for name in value:
        if not str(name).isidentifier():
            raise ValueError(f"{name!r} is no option: a group, as guide, holds its own below it")


def _named(value: dict[str, Any], kind: str, trusted: Collection[str]) -> dict[str, Any]:
    given = value.get(kind)
    if given is None:
        return value
    if kind == "guide" and isinstance(given, str) and (law := split_law(given)[1]):
        given = split_law(given)[0] or "tied"
        plain = {"prior": "delta"} if given == "tied" else {}
        value = {**plain, **value, "select": law}
    if isinstance(given, str):
        return {**value, kind: {"class_path": class_path(kind, given, trusted)}}
    if not isinstance(given, dict) or set(given) - {"class_path", "init_args"}:
        raise ValueError(f"{kind} must be a name, or class_path and init_args, got {given!r}")
    path = given.get("class_path")
    if path is not None:
        given = {**given, "class_path": class_path(kind, str(path), trusted)}
    refuse_code(kind, given.get("init_args"), given.get("class_path"))
    return {**value, kind: given}


def name_of(found: type, table: dict[str, Any]) -> str:
    """A class's name in a table, or its import path."""
    for name, known in table.items():
        if known is found:
            return name
    return f"{found.__module__}:{found.__qualname__}"
