"""The command line of a benchmark: options in groups, mistakes in one line."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NoReturn

from latentheads.experiments.cli.groups import BENCH_GROUPS, arrange_options

__all__ = ["Parser", "positive", "writable"]


class Parser(argparse.ArgumentParser):
    """Reports a wrong argument in one line, and shows its options in groups."""

    def __init__(self, name: str, description: str | None) -> None:
        form = argparse.RawDescriptionHelpFormatter
        usage = f"{name} [options]"
        super().__init__(name, usage, description, formatter_class=form, allow_abbrev=False)

    def format_help(self) -> str:
        """The help in groups."""
        arrange_options(self, BENCH_GROUPS)
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Prints the line and leaves with status 2."""
        self.exit(2, f"{self.prog}: {' '.join(message.split())}\n")


def positive(text: str) -> int:
    """A whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, got {text!r}")
    return int(text)


def writable(text: str) -> Path:
    """A file in a folder that exists."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"cannot write {text!r}: no such folder, or a folder")
    return path
