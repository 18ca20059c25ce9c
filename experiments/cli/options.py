"""The command line of a program that trains: its own options, and those of its runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeVar, cast

from latentheads.experiments.cli.startup import name_program

import yaml

import latentheads
from latentheads.checks import split_items
from latentheads.console import print_message
from latentheads.corpora.corpus import Corpus
from latentheads.data.base import Data
from latentheads.errors import one_line_message
from latentheads.experiments.cli.command_line import (
    FILE_OPTIONS,
    CommandLine,
    read_command_line,
    split_words,
)
from latentheads.experiments.cli.errors import exit_with_error, name_options, print_result
from latentheads.experiments.cli.help import select_help_page
from latentheads.experiments.cli.trust import check_trusted
from latentheads.latents.registry import LATENTS
from latentheads.options import (
    OptionError,
    explain_unknown,
    from_dict,
    in_group,
    options_class,
    options_of,
)
from latentheads.runs.build import changed_parts
from latentheads.runs.folder import TEXTS
from latentheads.runs.settings import Settings
from latentheads.runs.trainer import Trainer

P = TypeVar("P", bound="ProgramOptions")


@options_class()
class ProgramOptions:
    """Options of a program that trains, beside the settings of its runs.

    Attributes:
        out: Run folder; by default runs/RECIPE-seedSEED.
        overwrite: Start anew in a used folder.
        device: cpu, cuda, a GPU as cuda:1, or auto: cuda where there is one.
        report: Write report.html too, a page of the results, as report.py does.
        trust: Classes of your own that files and runs may name, as module:Class, comma between,
            or one option each.
        replaced: Options of a single run that the program has not, and its own in their place.
    """

    out: str = ""
    overwrite: bool = False
    device: str = "auto"
    report: bool = False
    trust: str = ""
    replaced: ClassVar[Mapping[str, str]] = {}


@options_class()
class RunOptions(ProgramOptions):
    """Options of a program that trains one run.

    Attributes:
        trackers: Trackers of accelerate, such as tensorboard, trackio and wandb, comma
            between.
        verbose: Explain each row of the table, and print the KL of every site.
    """

    trackers: str = ""
    verbose: bool = False


def read_settings(
    arguments: Sequence[str] | None, prog: str, description: str
) -> tuple[Settings, RunOptions, CommandLine]:
    """Reads the command line of one run; a mistake is one line and status 2."""
    options, line, program = read_program(arguments, prog, description, RunOptions)
    return read_run_settings(options, line, prog), program, line


def read_program(
    arguments: Sequence[str] | None, prog: str, description: str, kind: type[P]
) -> tuple[dict[str, Any], CommandLine, P]:
    """Reads a command line: the options of its runs as nested values, and the program's own."""
    words = sys.argv[1:] if arguments is None else arguments
    line = CommandLine({})
    if "--version" in words:
        print_result(prog, f"latentheads {latentheads.__version__}")
        sys.exit(0)
    with _failing(line, prog):
        word_options = split_words(["--help" if word == "-h" else word for word in words])
        if (
            page := select_help_page(word_options, kind, name_program(prog), description)
        ) is not None:
            print_result(prog, page)
            sys.exit(0)
        line = read_command_line(words, kind.replaced)
    for path, source in line.left_out.items():
        here = f": {prog} takes --{kind.replaced[path]}" if kind.replaced[path] else ""
        origin = source if source.startswith("preset ") else "--config"
        note = f"note: {path} of {origin} is left out{here}"
        print_message(f"{name_program(prog)}: {note}", sys.stderr)
    own_names = options_of(cast(Any, kind))
    common = {name: value for name, value in line.options.items() if name not in own_names}
    with _failing(line, prog):
        for name in common:
            if name not in (*options_of(Settings), *LATENTS):
                raise explain_unknown([Settings, kind], name, [*FILE_OPTIONS, "recipe"])
        own = {name: value for name, value in line.options.items() if name in own_names}
        program = from_dict(kind, own)
        for name in ("out", "start"):  # as from a variable of the shell that is not set
            if line.words.get(name) == "":
                raise OptionError(name, " must be a folder, got ''")
        start = line.options.get("start")
        check_trusted(line.trusted, line.options, [str(start)] if start else [])
    trust = ",".join(sorted(line.trusted))
    program = replace(program, out=os.path.expanduser(program.out), trust=trust)
    if "print_config" in word_options:
        settings = read_run_settings(common, line, prog)
        text = yaml.safe_dump(settings.to_options(), sort_keys=False, allow_unicode=True)
        print_result(prog, text.removesuffix("\n"))
        sys.exit(0)
    return common, line, program


def read_run_settings(options: Mapping[str, Any], line: CommandLine, prog: str) -> Settings:
    """The settings of nested values; a mistake is one line and status 2."""
    with _failing(line, prog):
        return Settings.from_nested(options, line.trusted)


@contextmanager
def _failing(line: CommandLine, prog: str) -> Iterator[None]:
    """Ends the program for a mistake in options, in one line that names where they stand."""
    try:
        yield
    except OptionError as reason:
        if instead := line.replaced.get(reason.path):
            reason = OptionError(instead, reason.message, reason.similar)
        _fail(prog, reason, line.source_of(reason.path))
    except (ValueError, TypeError) as reason:
        _fail(prog, reason)


def _fail(prog: str, reason: Exception, source: str = "") -> NoReturn:
    """Ends with a line: options of a file as its keys are, those of the words with dashes."""
    message = f"{source}: {reason}" if source else name_options(reason)
    exit_with_error(prog, f"error: {' '.join(message.split())}")


def trainer_of(
    settings: Settings, options: ProgramOptions, corpus: Corpus | None = None
) -> Trainer:
    """The trainer of a command line that was read."""
    trackers = options.trackers if isinstance(options, RunOptions) else ""
    return Trainer.of(
        settings,
        corpus,
        out=options.out or None,
        device=options.device,
        overwrite=options.overwrite,
        trackers=split_items(trackers) if trackers else [],
        trusted=options.trust or None,
    )


def load_corpus(data: Data) -> Corpus:
    """The corpus that options make, with its notes on standard output."""
    with in_group("data"):
        return data.load(partial(print_message, file=sys.stdout))


def check_text(folder: Path, data: Data, load: Callable[[Data], Corpus] = load_corpus) -> None:
    """Raises an error for a finished run whose text has changed since.

    If the text or its digests cannot be read, a note is printed, and the figures stay.
    """
    try:
        changed = changed_parts(folder / TEXTS, load(data))
    except (OSError, ValueError) as reason:
        note = f"note: whether the text of {folder} has changed is not known"
        print_message(f"{note}: {one_line_message(reason)}", sys.stderr)
        return
    if changed:
        raise ValueError(
            f"{folder} is of another text: that of {', '.join(changed)} has changed since; "
            "choose another out or --overwrite"
        )
