"""Tab completion of programs and their options, as a script for a shell."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, cast

from latentheads.experiments.cli.command_line import FILE_OPTIONS
from latentheads.experiments.cli.options import ProgramOptions, RunOptions
from latentheads.experiments.comparison.recipes import ComparisonOptions
from latentheads.experiments.sweep import SweepOptions
from latentheads.options import options_below, options_of
from latentheads.packages import import_optional
from latentheads.runs.settings import Settings

OF_SETTINGS: Mapping[str, type[ProgramOptions]] = {
    "run": RunOptions,
    "compare": ComparisonOptions,
    "sweep": SweepOptions,
}
"""The programs whose options are those of settings, and their own ones."""


def format_completion(shell: str, programs: Mapping[str, str]) -> str:
    """The script that completes the command."""
    script: str = import_optional("shtab").complete(make_parser(programs), shell)
    return script


def make_parser(programs: Mapping[str, str]) -> argparse.ArgumentParser:
    """A parser of all programs, each with the options that it has."""
    parser = argparse.ArgumentParser("latentheads")
    parser.add_argument("--version", action="store_true")
    subparsers = parser.add_subparsers()
    for name, purpose in programs.items():
        if name in OF_SETTINGS:
            program = subparsers.add_parser(name, help=purpose)
            for option in list_options(OF_SETTINGS[name]):
                program.add_argument(f"--{option}")
        else:
            parents = [import_module(f"latentheads.experiments.{name}").make_parser()]
            subparsers.add_parser(name, help=purpose, parents=parents, add_help=False)
    return parser


def list_options(kind: type[ProgramOptions]) -> Iterator[str]:
    """The options of a program that trains, without those that it replaces."""
    own = cast(Any, kind)
    names = [*options_of(own), *options_of(Settings), *options_below([Settings])]
    files = (name for name in FILE_OPTIONS if name != "help")
    for name in dict.fromkeys([*names, "recipe", *files, "version"]):
        if name not in kind.replaced:
            yield name
