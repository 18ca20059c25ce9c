"""One command for all programs: ``latentheads run --guide cascaded`` is ``experiments/run.py``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import EntryPoint

from latentheads.experiments.cli.startup import COMMAND

import latentheads
from latentheads.checks import check_choice
from latentheads.console import print_message
from latentheads.errors import one_line_message
from latentheads.plugins import PROGRAMS as ADDED
from latentheads.plugins import describe, find_entry_points, package_of

PROGRAMS = {
    "run": "train a model/guide pair and report its ELBO",
    "compare": "train several recipes with several seeds and compare their ELBOs",
    "sweep": "train recipes with several numbers of heads",
    "translate": "translate text with a run",
    "align": "align the words of two texts",
    "transcribe": "transcribe or translate audio files with a speech run",
    "word_times": "write when each word of sound files starts, by the attention of Whisper",
    "generate": "generate text with a language model",
    "score": "compute BLEU, chrF or log p of finished runs, with paired tests",
    "analyse": "analyse the heads of finished runs",
    "uncertainty": "evaluate the uncertainty and calibration of finished runs",
    "report": "write an HTML page of finished runs",
    "prune": "remove heads of a finished run",
}
"""One line of help for each program."""


def find_added() -> dict[str, EntryPoint]:
    """The programs of other packages by name."""
    return find_entry_points(ADDED, PROGRAMS)


def usage() -> str:
    """The help text of the command."""
    added = {name: f"of the package {package_of(point)}" for name, point in find_added().items()}
    programs = PROGRAMS | added
    width = max(map(len, programs))
    lines = (f"  {name:{width}}  {does}" for name, does in programs.items())
    return "\n".join(["usage: latentheads PROGRAM [options]", "", *lines, "", HINT])


HINT = "latentheads PROGRAM --help prints the options of a program"


SHELLS = ("bash", "zsh", "tcsh")
"""The shells whose completion can be printed."""


def print_completion(words: Sequence[str]) -> int:
    """Prints the tab completion of the command for a shell; returns the exit status."""
    check_choice("--print_completion", " ".join(words), SHELLS)
    from latentheads.experiments.cli.completion import format_completion  # it loads torch

    print_message(format_completion(words[0], PROGRAMS), sys.stdout)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a program and returns its exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if not words or words[0] in ("-h", "--help"):
        print_message(usage(), sys.stdout)
        return 0 if words else 2
    name, *rest = words
    if name == "--version":
        print_message(f"latentheads {latentheads.__version__}", sys.stdout)
        return 0
    try:
        if name == "--print_completion":
            return print_completion(rest)
        program = load_program(name)
    except ValueError as error:
        print(f"latentheads: error: {error}", file=sys.stderr)
        return 2
    token = COMMAND.set("latentheads")
    try:
        return program(rest)
    finally:
        COMMAND.reset(token)


def load_program(name: str) -> Callable[[Sequence[str]], int]:
    """The main function of a program: one of the library, or of another package.

    Raises:
        ValueError: There is no such program, or that of a package cannot be loaded.
    """
    program: Callable[[Sequence[str]], int]
    if name in PROGRAMS:
        program = import_module(f"latentheads.experiments.{name}").main
        return program
    added = find_added()
    check_choice("program", name, [*PROGRAMS, *added])
    try:
        program = added[name].load()
    except Exception as error:
        what = describe(added[name])
        raise ValueError(f"{what} cannot be loaded: {one_line_message(error)}") from error
    return program


if __name__ == "__main__":
    sys.exit(main())
