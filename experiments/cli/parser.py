"""An argparse parser with grouped options and errors of one line."""

from __future__ import annotations

import argparse
import os
import textwrap
from argparse import SUPPRESS
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from latentheads.experiments.cli.startup import name_program

import latentheads
from latentheads.errors import shown
from latentheads.experiments.cli.errors import exit_with_error, explain_word

Groups = Mapping[str, Sequence[str]]

OF_RUNS = ("checkpoint", "trust", "device", "seed")
"""Options of every program that reads finished runs; they come last, with its help."""


def arrange_options(parser: argparse.ArgumentParser, groups: Groups) -> None:
    """Shows the options of a parser in groups; one that stands in none stays where it is."""
    actions = {action.dest: action for action in parser._actions}
    named = {name for names in groups.values() for name in names}
    for group in parser._action_groups:
        group._group_actions = [
            option for option in group._group_actions if option.dest not in named
        ]
    first, *others = parser._action_groups  # what stands without a name in front, then the rest
    parser._action_groups = [first]
    for title, names in groups.items():
        group = parser.add_argument_group(title)
        group._group_actions.extend(actions[name] for name in names if name in actions)
    parser._action_groups += [group for group in others if group._group_actions]


class Paragraphs(argparse.HelpFormatter):
    """Keeps paragraphs of a description apart, and one that is indented as it is."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        parts = text.strip("\n").split("\n\n")
        return "\n\n".join(
            part if part.startswith("  ") else textwrap.fill(" ".join(part.split()), width)
            for part in parts
        )


class OneLineErrorParser(argparse.ArgumentParser):
    """A parser of whole names that reports an error in one line, and shows options in groups."""

    def __init__(
        self,
        name: str,
        description: str | None,
        groups: Groups,
        arguments: str = "[options]",
        formatter: type[argparse.HelpFormatter] = argparse.RawDescriptionHelpFormatter,
    ) -> None:
        program = name_program(name)
        usage = f"{program} {arguments}"
        super().__init__(program, usage, description, formatter_class=formatter, allow_abbrev=False)
        self.groups = groups
        version = f"latentheads {latentheads.__version__}"
        action = super().add_argument("--version", action="version", version=version, help=SUPPRESS)
        self._optionals._group_actions.remove(action)  # it stands in no group of the help

    def format_help(self) -> str:
        """The help with grouped options."""
        arrange_options(self, self.groups)
        return super().format_help()

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parses words; one that is no option is an error that names the option it is like."""
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self.error(explain_word(unknown[0], self._option_string_actions))
        return options

    def error(self, message: str) -> NoReturn:
        """Prints the error and exits with status 2."""
        exit_with_error(self.prog, f"error: {' '.join(message.split())}")


def add_loading_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of loading a finished run."""
    parser.add_argument(
        "--checkpoint",
        default="reported",
        help="best, last, average, step-NNNNNNN, or reported: the weights of the run's report",
    )
    parser.add_argument("--device", default="auto", help="cpu, cuda, a GPU as cuda:1, or auto")
    parser.add_argument(
        "--trust",
        "--guide",
        action=_JoinByCommas,
        help="user-defined guides and priors that a run may use, as module:Class, comma-separated "
        "or repeated",
    )


class _JoinByCommas(argparse.Action):
    """Joins the values of an option that is repeated."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        previous = getattr(namespace, self.dest)
        setattr(namespace, self.dest, f"{previous},{values}" if previous else values)


MAX_NAME_BYTES = 255
"""Most bytes of a file name, on all usual systems."""


def positive(text: str) -> int:
    """Parses a positive whole number."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, got {shown(text)}")
    return int(text)


def writable(text: str) -> Path:
    """Parses the path of a file in an existing folder."""
    path = Path(text).expanduser()
    if os.path.isdir(path) or not os.path.isdir(path.parent):
        raise argparse.ArgumentTypeError(f"cannot write {text}: no such folder, or a folder")
    if len(os.fsencode(path.name)) > MAX_NAME_BYTES:
        raise argparse.ArgumentTypeError(
            f"cannot write {text[:40]}...: a name has at most {MAX_NAME_BYTES} bytes"
        )
    return path
