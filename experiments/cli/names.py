"""The short words of a command line: presets, recipes, and names that stand for classes."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

from jsonargparse import Namespace

from latentheads.files import parse_yaml
from latentheads.runs.naming import is_of_logits, read_names
from latentheads.runs.pairs import Spec
from latentheads.runs.recipes import (
    ALIGNED,
    DEFAULTS,
    LOGITS,
    NAMED,
    OF_LOGITS,
    class_path,
    find_recipe,
    name_of,
    refuse_other_kinds,
    resolve,
    split_law,
    split_path,
)
from latentheads.runs.settings import BY_HAND, join_unused

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

INSTEAD = {"--tasks": "--task_sizes", "--sentences": "--task_sizes", "--first": "--task_sizes"}
"""Options that take the place of what a file says by another option."""

FLAGS = ("--overwrite", "--verbose", "--tensorboard", "--report")


def presets() -> dict[str, Path]:
    """The presets that ship with the programs."""
    return {path.stem: path for path in PRESETS.glob("*.yaml")}


def expand_words(arguments: Sequence[str]) -> list[str]:
    """Turns the short words of a command line into what the parser knows.

    A recipe becomes a prior and a guide, a preset a configuration file, a name a class, a bare flag
    ``true``, numbers with commas a list, an option said for each stack one text; a law of selection
    behind a ``+`` becomes ``--select``. Files come first, so that any other word changes what they
    say; then the names of guide and prior, then everything else, their own options included.
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
        elif word in NUMBERS and not following.startswith("--"):
            next(pairs, None)
            rest += [word, f"[{following.strip().removeprefix('[').removesuffix(']')}]"]
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
        return ["--config", str(_preset(value))]
    value, select = _selecting(word, value)
    _refuse_preset(word[2:].partition(".")[0], value)
    if word == "--recipe":
        prior, guide = (find_recipe(value)[kind] for kind in ("prior", "guide"))
        pair = ["--prior", class_path("prior", prior), "--guide", class_path("guide", guide)]
        # it says of alignments what it says, whatever files say
        blocks = "null" if value.endswith(ALIGNED) else OF_LOGITS["alignments"]
        return [*pair, f"--alignments={blocks}", *select]
    if ":" in value or "." in value:
        find_own_classes()
    return [word, class_path(word[2:7], value), *select]


def _selecting(word: str, value: str) -> tuple[str, list[str]]:
    """A guide or recipe without its law of selection, and the words that say the law."""
    if word not in ("--guide", "--recipe"):
        return value, []
    name, law = split_law(value)
    if word == "--recipe" and not name:
        raise ValueError(f"recipe {value!r} is a law of selection alone: use --guide {law}")
    return name or "tied", ["--select", law or "none"]


def _defaults(words: list[str]) -> list[str]:
    """What is said where nobody says it: files and all other words come behind it.

    A prior is of logits. So is a ``Guide`` of the reader's own that says nothing of alignments.
    Where options of a guide stand and nothing names one, it is the default; options of a prior are
    those of the prior of logits.
    """
    found = []
    for kind, name in {**DEFAULTS, "prior": LOGITS}.items():
        own = any(word.startswith(f"--{kind}.") and "help" not in word for word in words)
        if own and not {f"--{kind}", "--recipe"} & set(words):
            found += [f"--{kind}", class_path(kind, name)]
    prior = _prior_beside(words)
    if prior or "--prior" in [*words, *found]:
        found += [f"--{name}={value}" for name, value in OF_LOGITS.items()]
    return found + (["--prior", class_path("prior", prior)] if prior else [])


def _prior_beside(words: list[str]) -> str:
    """The prior of a guide that is not of alignments, where nothing names another."""
    guides = [split_law(name)[0] for name in _said(words, "--guide")]
    if not guides or {"--prior", "--recipe"} & set(words):
        return ""
    if not guides[-1]:
        return "delta"  # a law of selection alone
    if ":" in guides[-1] or "." in guides[-1]:
        find_own_classes()
    return LOGITS if is_of_logits(class_path("guide", guides[-1])) else ""


def _said(words: list[str], name: str) -> list[str]:
    """The values that an option is given."""
    return [value for word, value in pairwise(words) if word == name]


def _split_equals(arguments: Sequence[str]) -> list[str]:
    words: list[str] = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        named = name in (*SHORT, *JOINED, *NUMBERS, "--trust") and equals
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
        raise ValueError(f"unknown preset {name!r}: choose from {', '.join(sorted(table))}")
    return table[name]


def _refuse_preset(kind: str, name: str) -> None:
    """Says of a preset that it is one, where something else is asked for."""
    if name in presets():
        raise ValueError(f"{name!r} is no {kind} but a preset: use preset {name}")


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
            found.update(split_path("trust", name) for name in value.split(","))
    return frozenset(found)


def load_yaml(text: str, trusted: Collection[str] = ()) -> Any:
    """Reads YAML; in a configuration, names stand for classes as on the command line.

    Args:
        text: The YAML.
        trusted: As for :func:`latentheads.runs.recipes.class_path`.
    """
    value = parse_yaml(text)
    if isinstance(value, dict) and value.get("corpus") == BY_HAND:
        raise ValueError("corpus by hand: only who made it can train on it, from Python")
    return read_names(join_unused(value), trusted) if isinstance(value, dict) else value


def spec_of(kind: str, configuration: Namespace) -> Spec:
    """The prior or the guide that a command line names."""
    given = configuration[kind]
    if given is None:
        return Spec(DEFAULTS[kind])
    name = name_of(resolve(given.class_path), NAMED[kind])
    return Spec(name, dict(given.get("init_args") or {}))


def find_own_classes() -> None:
    """Lets classes of the reader's own be found where he started the program."""
    if HERE not in sys.path:
        sys.path.insert(0, HERE)
