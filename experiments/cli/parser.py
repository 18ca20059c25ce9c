"""A plain command line: options in groups, mistakes in one line, values that are checked."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from latentheads.experiments.cli.errors import exit_with_error, name_close
from latentheads.experiments.cli.groups import arrange_options

__all__ = ["OneLineErrorParser", "add_loading_options", "positive", "writable"]


class OneLineErrorParser(argparse.ArgumentParser):
    """Reports a wrong argument in one line, and shows its options in groups.

    Args:
        name: Of the program.
        description: What ``--help`` says it does.
        groups: The names of the options of each group, by its title.
        words: What follows the name.
        form: How the description is laid out; as it is written where none is given.
    """

    def __init__(
        self,
        name: str,
        description: str | None,
        groups: Mapping[str, Sequence[str]],
        words: str = "[options]",
        form: type[argparse.HelpFormatter] = argparse.RawDescriptionHelpFormatter,
    ) -> None:
        usage = f"{name} {words}"
        super().__init__(name, usage, description, formatter_class=form, allow_abbrev=False)
        self.groups = groups

    def format_help(self) -> str:
        """The help in groups."""
        arrange_options(self, self.groups)
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Prints the line and leaves with status 2."""
        said = name_close(" ".join(message.split()), self._option_string_actions)
        exit_with_error(self.prog, f"error: {said}")


def add_loading_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that say how a finished run is loaded."""
    parser.add_argument(
        "--checkpoint",
        type=str,
        default="reported",
        help="best, last, average, step-NNNNNNN, or reported: the weights that the run's figures "
        "are of",
    )
    parser.add_argument("--device", type=str, default="auto", help="cpu, cuda or auto")
    parser.add_argument(
        "--trust",
        "--guide",
        type=str,
        help="module:Class, comma between: guides and priors of your own that a run may be made of",
    )


LONGEST_NAME = 255
"""Bytes of the name of a file, on all usual systems."""


def positive(text: str) -> int:
    """A whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, got {text!r}")
    return int(text)


def writable(text: str) -> Path:
    """A file in a folder that exists."""
    path = Path(text).expanduser()
    if os.path.isdir(path) or not os.path.isdir(path.parent):
        raise argparse.ArgumentTypeError(f"cannot write {text}: no such folder, or a folder")
    if len(os.fsencode(path.name)) > LONGEST_NAME:
        raise argparse.ArgumentTypeError(
            f"cannot write {text[:40]}...: a name has at most {LONGEST_NAME} bytes"
        )
    return path
