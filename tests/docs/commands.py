"""The command lines of the pages, read as their programs read them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cache
from importlib import import_module
from typing import Any
from unittest import mock

import pytest

from latentheads.experiments.cli.command_line import SHORT
from latentheads.experiments.cli.help import FIRST, LAST
from latentheads.experiments.cli.options import RunOptions, read_settings
from latentheads.experiments.comparison.recipes import ComparisonOptions
from latentheads.experiments.sweep import SweepOptions
from latentheads.latents.registry import LATENTS
from latentheads.options import choices_of, inner_kind, options_of
from latentheads.runs.settings import Settings
from tests.docs.pages import Page
from tests.experiments.programs import module_of

TRAINING: dict[str, type] = {
    "run": RunOptions,
    "compare": ComparisonOptions,
    "sweep": SweepOptions,
}
"""Programs that train, and the options of their own."""

OTHERS = {"config", *FIRST, *LAST}
"""Options that stand for others, or for a file of options."""


def commands(page: Page) -> list[list[str]]:
    """The command lines of a page: a program's name and its words."""
    blocks = "".join(page.blocks("bash")).replace("\\\n", " ").splitlines()
    codes = [code for code in page.inline if code.startswith("python experiments/")]
    actual = []
    for line in [*blocks, *codes]:
        program = re.search(r"experiments/(?:studies/)?(\w+)\.py(?= |$)(.*)", line)
        if program and not program[1].isupper():
            words = shlex.split(program[2], comments=True)
            end = next((i for i, word in enumerate(words) if word in ("<", ">")), len(words))
            actual.append([program[1], *words[:end]])
    return actual


class _Accepted(BaseException):
    """A program has read its command line, and begins its work."""


def accept(program: str, words: list[str]) -> None:
    """Reads a command line as its program does, which trains nothing here."""
    module = import_module(module_of(program))
    if program == "run":
        read_settings(words, "run.py", module.DESCRIPTION)
    elif program in TRAINING:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "train_all", mock.Mock(side_effect=_Accepted))
            with pytest.raises(_Accepted):
                module.main(words)
    else:
        module.make_parser().parse_args(words)


@cache
def known_options(program: str) -> frozenset[str]:
    """The options of a program, each with its ``--`` and the groups that it is in."""
    if program not in TRAINING:
        parser = import_module(module_of(program)).make_parser()
        return frozenset(parser._option_string_actions)
    groups = [*_paths(Settings, ""), *_paths(TRAINING[program], "")]
    for name, kind in LATENTS.items():
        groups += [f"{name}.help", *_paths(kind, f"{name}.")]
    for short, path in SHORT.items():
        groups += [short + name.removeprefix(path) for name in groups if name.startswith(path)]
    return frozenset(f"--{name}" for name in (*OTHERS, *groups))


def _paths(reference: type, prefix: str) -> Iterator[str]:
    """The options of a class, those of the groups within it too, and the help of each group."""
    for name, option in options_of(reference).items():
        path, kind = f"{prefix}{name}", inner_kind(option.kind)
        yield path
        for inner in _classes(kind):
            yield f"{path}.help"
            yield from _paths(inner, f"{path}.")


def _classes(kind: Any) -> list[type]:
    """The classes that a group of options may be of; none of what is no group."""
    table = choices_of(kind)
    return list(table.values()) if table is not None else [kind] if is_dataclass(kind) else []
