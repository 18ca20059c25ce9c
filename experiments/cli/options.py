"""The command line of the programs: options, and one-line errors."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, ClassVar, Literal, NoReturn, TypeVar, cast, get_args, get_origin

from latentheads.experiments.cli.startup import name_program

import yaml

import latentheads
from latentheads.corpora import Corpus
from latentheads.experiments.cli.command_line import (
    FILE_OPTIONS,
    CommandLine,
    find_own_classes,
    read_command_line,
    split_words,
)
from latentheads.experiments.cli.errors import (
    exit_with_error,
    name_options,
    print_result,
)
from latentheads.experiments.cli.help import TITLE, fill_paragraphs, select_help_page, texts_of
from latentheads.experiments.cli.parser import (
    OF_RUNS,
    Groups,
    OneLineErrorParser,
    Paragraphs,
    add_loading_options,
)
from latentheads.experiments.cli.trust import check_trusted
from latentheads.latents.registry import LATENTS
from latentheads.options import (
    OPTION_ALIASES,
    OptionError,
    from_dict,
    inner_kind,
    options_class,
    options_of,
)
from latentheads.runs.loading import load_finished, load_run
from latentheads.runs.run import Run
from latentheads.runs.settings import Settings, trusted_paths
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
        tensorboard: Write TensorBoard's file too.
        verbose: Explain each row of the table, and print the KL of every site.
    """

    tensorboard: bool = False
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
    words, printing = sys.argv[1:] if arguments is None else arguments, False
    if "--version" in words:
        print_result(prog, f"latentheads {latentheads.__version__}")
        sys.exit(0)
    try:
        word_options = split_words([word for word in words if word != "-h"])
        if "-h" in words:
            word_options["help"] = "true"
        if (page := select_help_page(word_options, kind)) is not None:
            whole = page.startswith(TITLE)
            head = f"usage: {name_program(prog)} [options]\n\n{fill_paragraphs(description)}\n\n"
            print_result(prog, head + page if whole else page)
            sys.exit(0)
        printing = bool(word_options.get("print_config"))
        rest = [word for word in words if not word.startswith("--print_config")]
        line = read_command_line(rest, kind.replaced)
    except ValueError as reason:
        _fail(prog, reason)
    _validate_names(line, kind, prog)
    own = {
        name: value for name, value in line.options.items() if name in options_of(cast(Any, kind))
    }
    common = {name: value for name, value in line.options.items() if name not in own}
    with _failing(line, prog):
        program = from_dict(kind, own)
        start = line.options.get("start")
        check_trusted(line.trusted, line.options, [str(start)] if start else [])
    trust = ",".join(sorted(line.trusted))
    program = replace(program, out=os.path.expanduser(program.out), trust=trust)
    if printing:
        settings = read_run_settings(common, line, prog)
        print(yaml.safe_dump(settings.to_options(), sort_keys=False, allow_unicode=True), end="")
        sys.exit(0)
    return common, line, program


def read_run_settings(options: Mapping[str, Any], line: CommandLine, prog: str) -> Settings:
    """The settings of nested values; a mistake is one line and status 2."""
    with _failing(line, prog):
        return Settings.from_nested(options, line.trusted)


def _validate_names(line: CommandLine, kind: type[ProgramOptions], prog: str) -> None:
    """Raises an error for a name that is like one of the program's, or that others have."""
    names = [*options_of(cast(Any, kind)), *options_of(Settings), *LATENTS, "recipe"]
    for name in line.options:
        if name in (*names, *kind.replaced):
            continue
        alias = OPTION_ALIASES.get(name)
        close = [alias] if alias else get_close_matches(name, [*names, *FILE_OPTIONS], 1, 0.75)
        if close:
            _fail(prog, OptionError(name, " is not an option", close), line.source_of(name))


@contextmanager
def _failing(line: CommandLine, prog: str) -> Iterator[None]:
    """Ends the program for a mistake in options, in one line that names where they stand."""
    try:
        yield
    except OptionError as reason:
        source = line.source_of(reason.path) if reason.path else ""
        if instead := line.replaced.get(reason.path):
            reason = OptionError(instead, reason.message, reason.similar)
        _fail(prog, reason, source)
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
    return Trainer.of(
        settings,
        corpus,
        out=options.out or None,
        device=options.device,
        overwrite=options.overwrite,
        tensorboard=isinstance(options, RunOptions) and options.tensorboard,
        trusted=options.trust or None,
    )


class Options(argparse.Namespace):
    """The values of a parser, by attribute or by name."""

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def get(self, name: str, default: Any = None) -> Any:
        """A value, or another where there is no such option."""
        return getattr(self, name, default)


class Parser(OneLineErrorParser):
    """A parser of typed options, whose errors spell the library's arguments as options."""

    def __init__(
        self, name: str, description: str, groups: Groups, arguments: str = "[options]"
    ) -> None:
        super().__init__(name, description, groups, arguments, Paragraphs)

    def add_argument(self, *names: str, **options: Any) -> Any:
        """Adds an option; one that is true or false is true where it stands alone."""
        kind = inner_kind(options.get("type"))
        options |= {"type": kind} if kind is not None else {}
        if kind is bool:
            options |= {"type": _read_bool, "nargs": "?", "const": True}
        elif get_origin(kind) is Literal:
            options |= {"type": type(get_args(kind)[0]), "choices": get_args(kind)}
        return super().add_argument(*names, **options)

    def add_dataclass(self, kind: type, skip: Sequence[str] = ()) -> None:
        """Adds the options of a dataclass."""
        help_texts = texts_of(kind)
        for name, option in options_of(kind).items():
            if name not in skip:
                self.add_argument(
                    f"--{name}",
                    type=inner_kind(option.kind),
                    default=option.default,
                    help=help_texts.get(name),
                )

    def format_help(self) -> str:
        """The help without the marks of code."""
        return super().format_help().replace("``", "")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parses words; a shell leaves the ``~`` of ``--out=~/runs`` as it is."""
        options = super().parse_args(args, Options())
        if getattr(options, "out", None):
            options.out = os.path.expanduser(options.out)
        return options

    def error(self, message: str) -> NoReturn:
        """Prints the line and exits with status 2."""
        exit_with_error(self.prog, f"error: {' '.join(message.split())}")


def _read_bool(text: str) -> bool:
    values = {"true": True, "yes": True, "false": False, "no": False}
    if text.lower() not in values:
        raise argparse.ArgumentTypeError(f"expected true or false, got {text}")
    return values[text.lower()]


def add_run_options(parser: argparse.ArgumentParser, seed: str) -> None:
    """Adds the options of a program that reads finished runs; ``seed`` is what its seed is for."""
    parser.add_argument("--seed", type=int, default=0, help=seed)
    add_loading_options(parser)


def make_reader(name: str, description: str, groups: Groups) -> Parser:
    """Makes the parser of a program that reads several finished runs."""
    groups = {**groups, "the runs": (*OF_RUNS, "help")}
    parser = Parser(name, description, groups, "[options] RUN [RUN ...]")
    parser.add_argument("runs", nargs="+", help="folders that run.py wrote")
    return parser


def open_run(folder: str, options: argparse.Namespace, finished: bool = False) -> Run:
    """Loads the run that a command line names, with the options of :func:`add_run_options`."""
    if options.trust:
        find_own_classes()
    load = load_finished if finished else load_run
    run = load(folder, options.checkpoint, options.device, options.trust)
    check_trusted(trusted_paths(options.trust), runs=getattr(options, "runs", [folder]))
    return run
