"""The short words of a command line: presets, recipes, and names that stand for classes."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping, Sequence
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

from jsonargparse import Namespace

from latentheads.checks import check_known, parse_integers, split_items
from latentheads.files import parse_yaml, read_text
from latentheads.runs.naming import read_names
from latentheads.runs.pairs import ClassSpec
from latentheads.runs.recipes import (
    DEFAULTS,
    LOGITS,
    NAMED,
    class_path,
    name_of,
    refuse_other_kinds,
    resolve,
    split_law,
    split_path,
)
from latentheads.runs.settings import IN_MEMORY, join_unused

__all__ = [
    "expand_words",
    "find_own_classes",
    "load_yaml",
    "named_classes",
    "presets",
    "spec_of",
    "without",
]

HERE = os.getcwd()
"""Where the program was started: the parser changes folders while it reads a file."""

PRESETS = Path(str(files("latentheads.experiments"))) / "presets"
JOINED = ("--mixers", "--windows", "--ngram_width")
"""Options that may be said for each stack on its own."""

NUMBERS = ("--cutoffs", "--task_sizes")
"""Options that are lists of numbers, which may be typed with commas alone."""

LISTS = ("recipes", "seeds", "head_numbers", "devices", "tasks", "latent", "families")
"""Options that are texts with commas between, which a file may say as a list."""

INSTEAD = {"--tasks": "--task_sizes", "--sentences": "--task_sizes", "--first": "--task_sizes"}
"""Options that replace another one in a file."""

SAYS = {
    "recipe": ("prior", "guide", "alignments", "select"),
    "guide": ("guide", "select"),
    "prior": ("prior",),
}
"""The options that a name sets over those of files; files may change what else goes with it."""

UNSAID = {"alignments": "null", "select": "none"}
"""The values of these options under a name that does not mention them."""

FILES = ("--config", "--preset")
OWN = ("--guide.", "--prior.")
HELP = ("--guide.help", "--prior.help")
WITH_VALUES = (*FILES, *HELP, *JOINED, *(f"--{name}" for name in SAYS))


def presets() -> dict[str, Path]:
    """The presets that ship with the programs."""
    return {path.stem: path for path in PRESETS.glob("*.yaml")}


def expand_words(arguments: Sequence[str]) -> list[str]:
    """Turns the short words of a command line into what the parser knows.

    A recipe becomes a prior and a guide, a preset a configuration file, a name a class, an option
    of a guide or a prior that stands alone ``true``, numbers with commas a list, an option said for
    each stack one text; a law of selection behind a ``+`` becomes ``--select``. Files come first,
    so that any other word changes what they say; then the names of guide and prior, then everything
    else, their own options included.
    """
    words = _split_equals(arguments)
    files: list[str] = []
    said: dict[str, str] = {}
    rest: list[str] = []
    parts: dict[str, list[str]] = {}
    pairs = pairwise([*words, "--"])
    for word, following in pairs:
        if word.startswith(OWN) and word not in HELP and following.startswith("--"):
            rest.append(word if "=" in word else f"{word}=true")
        elif word in NUMBERS and not following.startswith("--"):
            next(pairs, None)
            rest += [word, f"[{following.strip().removeprefix('[').removesuffix(']')}]"]
        elif word not in WITH_VALUES or following == "--":
            rest.append(word)
        else:
            next(pairs, None)
            if word in JOINED:
                parts.setdefault(word, []).append(following)
            elif word in HELP:
                rest += _find_help(word, following)
            elif word in FILES:
                files += _find_file(word, following)
            else:
                said[word[2:]] = following
    joined = [word for name, each in parts.items() for word in (name, " ".join(each))]
    names, beside = _read_said(said, rest)
    return [*beside, *files, *names, *_replaced(words), *rest, *joined]


def _replaced(words: list[str]) -> list[str]:
    """Empties options of files in whose place the command line has another one."""
    said = {word.partition("=")[0] for word in words}
    others = {other for word, other in INSTEAD.items() if word in said}
    return [f"{other}=[]" for other in others - said]


def _find_file(word: str, name: str) -> list[str]:
    """A file of options, or that of a preset."""
    if word == "--preset":
        return ["--config", str(_preset(name))]
    if os.path.isfile(name):
        try:
            read_text(Path(name))
        except (OSError, ValueError) as reason:
            raise ValueError(f"--config {name} cannot be read: {reason}") from reason
    return ["--config", name]


def _find_help(word: str, name: str) -> list[str]:
    """Help on a class."""
    kind = word[2:].partition(".")[0]
    _look_at(kind, name)
    return [word, class_path(kind, name)]


def _read_said(said: Mapping[str, str], rest: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options that names set: first those that override files, then those that files override.

    Options of a guide, or of a prior, where none is named are those of the default guide, or of the
    default prior of logits.
    """
    for kind, name in said.items():
        _look_at(kind, split_law(name)[0])
    chosen = {} if "recipe" in said else _with_options(rest)
    own = [option for name in said for option in SAYS[name]]
    unsaid = {option: value for option, value in UNSAID.items() if option in own}
    known = unsaid | read_names(chosen | dict(said), trusted=None)
    names = {option: value for option, value in known.items() if option in own}
    beside = {option: value for option, value in known.items() if option not in own}
    return _to_words(names), _to_words(beside)


def _with_options(words: Sequence[str]) -> dict[str, str]:
    """The guide and the prior that options belong to, unless others are named."""
    return {
        kind: name
        for kind, name in {**DEFAULTS, "prior": LOGITS}.items()
        if any(word.startswith(f"--{kind}.") and "help" not in word for word in words)
    }


def _to_words(known: Mapping[str, Any]) -> list[str]:
    """Options as a command line says them."""
    plain = {k: v["class_path"] if isinstance(v, dict) else v for k, v in known.items()}
    return [f"--{option}={value}" for option, value in plain.items()]


def _split_equals(arguments: Sequence[str]) -> list[str]:
    words: list[str] = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        named = name in (*WITH_VALUES, *NUMBERS, "--trust") and equals
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


def _preset(name: str) -> Path:
    """The file of a preset."""
    table = presets()
    if name not in table:
        refuse_other_kinds("preset", name)
    check_known("preset", name, sorted(table))
    return table[name]


def _look_at(kind: str, name: str) -> None:
    """Refuses the name of a preset, and lets a class of the reader's own be found."""
    if name in presets():
        raise ValueError(f"{name!r} is no {kind} but a preset: use preset {name}")
    if ":" in name or "." in name:
        find_own_classes()


def named_classes(arguments: Sequence[str]) -> frozenset[str]:
    """The import paths of classes that a command line names: its files may name them too.

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
            found.update(split_path("trust", name) for name in split_items(value))
    return frozenset(found)


def load_yaml(text: str, trusted: Collection[str] = ()) -> Any:
    """Reads YAML; in a configuration, names stand for classes as on the command line.

    Args:
        text: The YAML.
        trusted: As for :func:`latentheads.runs.recipes.class_path`.
    """
    value = parse_yaml(text)
    if isinstance(value, dict) and value.get("corpus") == IN_MEMORY:
        raise ValueError("corpus by hand: only who made it can train on it, from Python")
    if not isinstance(value, dict):
        return value
    typed = {name: _as_typed(name, each) for name, each in value.items()}
    return read_names(join_unused(typed), trusted)


def _as_typed(name: str, value: Any) -> Any:
    """The value of an option in a file, where a list is written as on a command line or by YAML."""
    if isinstance(value, bool):
        return value
    if f"--{name}" in NUMBERS and isinstance(value, int | str):
        return parse_integers(name, str(value))
    if name in LISTS and isinstance(value, int | list):
        return ",".join(map(str, value)) if isinstance(value, list) else str(value)
    return value


def spec_of(kind: str, configuration: Namespace) -> ClassSpec:
    """The prior or the guide that a command line names."""
    given = configuration[kind]
    if given is None:
        return ClassSpec(DEFAULTS[kind])
    name = name_of(resolve(given.class_path), NAMED[kind])
    return ClassSpec(name, dict(given.get("init_args") or {}))


def find_own_classes() -> None:
    """Lets classes of the reader's own be found where he started the program."""
    if HERE not in sys.path:
        sys.path.insert(0, HERE)
