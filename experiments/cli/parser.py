"""An argparse parser whose options stand in groups, with errors of one line."""

from __future__ import annotations

import argparse
import inspect
import os
import re
import sys
import textwrap
from argparse import SUPPRESS
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, get_args, get_origin

from latentheads.experiments.cli.startup import name_program

import latentheads
from latentheads.console import print_message
from latentheads.experiments.cli.command_line import find_own_classes
from latentheads.experiments.cli.errors import exit_with_error, name_options
from latentheads.experiments.cli.outputs import check_output_file
from latentheads.experiments.cli.trust import check_trusted
from latentheads.options import (
    Count,
    OptionError,
    Size,
    Text,
    explain_unknown,
    from_dict,
    inner_kind,
    options_of,
    read_text,
)
from latentheads.runs.loading import load_finished, load_run
from latentheads.runs.run import Run
from latentheads.runs.settings import trusted_paths

Groups = Mapping[str, Sequence[str]]

Options = argparse.Namespace

OF_RUNS = ("checkpoint", "trust", "device", "seed")
"""Options of every program that reads finished runs; they come last, with its help."""

DASHES = ("\N{EN DASH}", "\N{EM DASH}")
"""What word processors make of the two hyphens of an option."""


class Formatter(argparse.HelpFormatter):
    """Keeps paragraphs apart, and one that is indented as it is; shows defaults that say much."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32, width=99)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        parts = text.strip("\n").split("\n\n")
        return "\n\n".join(
            part if part.startswith("  ") else textwrap.fill(" ".join(part.split()), width)
            for part in parts
        )

    def _split_lines(self, text: str, width: int) -> list[str]:
        # a name that is broken at its hyphen cannot be copied
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _get_help_string(self, action: argparse.Action) -> str:
        text, default = action.help or "", action.default
        if default is False or default in (None, "", (), [], SUPPRESS) or "default" in text:
            return text
        return f"{text} (default: %(default)s)"


class Parser(argparse.ArgumentParser):
    """A parser of typed options in groups, known by their whole names."""

    def __init__(
        self, name: str, description: str | None, groups: Groups, arguments: str = "[options]"
    ) -> None:
        program = name_program(name)
        super().__init__(
            program,
            f"{program} {arguments}",
            description,
            formatter_class=Formatter,
            allow_abbrev=False,
            add_help=False,
        )
        self.groups = {
            option: group
            for title, options in groups.items()
            for group in [self.add_argument_group(title)]
            for option in options
        }
        self.add_argument("--help", "-h", action="help", help="show this help and end")
        version = f"latentheads {latentheads.__version__}"
        action = super().add_argument("--version", action="version", version=version, help=SUPPRESS)
        self._optionals._group_actions.remove(action)  # it stands in no group of the help

    def add_argument(self, *names: str, **options: Any) -> Any:
        """Adds an option to its group; one that is true or false is true where it stands alone."""
        kind = inner_kind(options.get("type"))
        if names == ("--out",) and kind is None:  # a shell leaves the ~ of --out=~/runs
            options["type"] = _named_path
        if kind is bool:
            options |= {"nargs": "?", "const": True}
        if get_origin(kind) is Literal:
            options |= {"type": type(get_args(kind)[0]), "choices": get_args(kind)}
        elif kind in (bool, int, float) or get_origin(kind) in (Annotated, tuple):  # with limits
            options["type"] = typed(kind)
        group = self.groups.get(names[0].lstrip("-"))
        add = super().add_argument if group is None else group.add_argument
        return add(*names, **options)

    def add_dataclass(self, kind: type, skip: Sequence[str] = ()) -> None:
        """Adds the options of a dataclass."""
        texts = texts_of(kind)
        for name, option in options_of(kind).items():
            if name not in skip:
                text, default = texts.get(name), option.default
                self.add_argument(f"--{name}", type=option.kind, default=default, help=text)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parses words; one that is no option is an error that names the option it is like."""
        for word in sys.argv[1:] if args is None else args:
            name = word.lstrip("".join(DASHES)).partition("=")[0]
            if word.startswith(DASHES) and f"--{name}" in self._option_string_actions:
                self.error(f"unrecognized argument {word!r}: an option begins with --")
        options, unknown = self.parse_known_args(args)
        if any(not word.startswith("-") for word in unknown):  # an option between positionals
            options, unknown = self.parse_known_intermixed_args(args)
        for word in unknown:
            if not word.startswith("-"):
                self.error(f"unexpected argument {word!r}")
            name = word.partition("=")[0].lstrip("-").replace("-", "_")
            names = [option[2:] for option in self._option_string_actions if option != "-h"]
            self.error(name_options(explain_unknown([], name, names)))
        return options

    def error(self, message: str) -> NoReturn:
        """Prints the error in one line, and exits with status 2."""
        exit_with_error(self.prog, f"error: {' '.join(message.split())}")


def texts_of(option_class: type) -> dict[str, str]:
    """What the documentation of a class and of its bases says of its options."""
    texts: dict[str, str] = {}
    for base in reversed(option_class.__mro__):
        for page in (base.__doc__, base.__init__.__doc__):  # type: ignore[misc]
            text = inspect.cleandoc(page or "")
            for rows in re.findall(r"\n(?:Attributes|Args):\n(.*?)(?:\n\n|$)", text, re.DOTALL):
                entries = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", rows, re.MULTILINE)
                texts |= {name: " ".join(row.split()).replace("``", "") for name, row in entries}
    return texts


def typed(kind: Any) -> Callable[[str], Any]:
    """What reads the text of an option of a kind, as the library's options are read."""

    def read(text: str) -> Any:
        try:
            return from_dict(kind, read_text(kind, Text(text)))
        except OptionError as error:
            raise argparse.ArgumentTypeError(error.message.lstrip(": ")) from None

    return read


def _named_path(text: str) -> str:
    """Reads a path; a variable of the shell that is not set is none."""
    if not text:
        raise argparse.ArgumentTypeError("must be a file or a folder, got ''")
    return os.path.expanduser(text)


positive = typed(Count)
"""Reads a whole number from 1."""


def writable(text: str) -> Path:
    """Parses the path of a file that can be written."""
    name = os.path.expanduser(text)
    try:
        check_output_file(name)
    except ValueError as reason:
        raise argparse.ArgumentTypeError(str(reason).removeprefix("--out: ")) from None
    return Path(name)


def make_reader(name: str, description: str, groups: Groups) -> Parser:
    """Makes the parser of a program that reads several finished runs."""
    groups = {**groups, "the runs": (*OF_RUNS, "help")}
    parser = Parser(name, description, groups, "[options] RUN [RUN ...]")
    parser.add_argument("runs", nargs="+", help="folders that run.py wrote")
    return parser


def add_run_options(parser: argparse.ArgumentParser, seed: str, default: int = 0) -> None:
    """Adds the options of a program that reads finished runs; ``seed`` is what its seed is for."""
    parser.add_argument("--seed", type=Size, default=default, help=seed)
    weights = "best, last, average, step-NNNNNNN, or reported: the weights of the run's report"
    parser.add_argument("--checkpoint", default="reported", help=weights)
    parser.add_argument("--device", default="auto", help="cpu, cuda, a GPU as cuda:1, or auto")
    own = "guides and priors of your own that a run may use, module:Class; may be repeated"
    parser.add_argument("--trust", "--guide", action="append", default=[], help=own)


def open_run(folder: str, options: argparse.Namespace, finished: bool = False) -> Run:
    """Loads the run that a command line names, with the options of :func:`add_run_options`."""
    if options.trust:
        find_own_classes()
    load = load_finished if finished else load_run
    trusted = ",".join(options.trust)
    run = load(folder, options.checkpoint, options.device, trusted)
    check_trusted(trusted_paths(trusted), runs=getattr(options, "runs", [folder]))
    return run


def open_any_run(folder: str, options: argparse.Namespace, program: str) -> Run:
    """Loads a run as :func:`open_run`, with a note on standard error if it ended early."""
    run = open_run(folder, options)
    steps = run.settings.train.steps
    trained = run.metrics[-1]["step"] if run.metrics else 0
    if trained < steps and not (run.path / "results.json").is_file():
        weights = f"its weights are of step {run.step:,} of {steps:,}"
        note = f"note: {run.path} is not finished: {weights}"
        print_message(f"{name_program(program)}: {note}", sys.stderr)
    return run
