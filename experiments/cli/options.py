"""The command line of the programs: options, and one-line errors."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NoReturn

from jsonargparse import ActionConfigFile, ArgumentParser, Namespace, set_loader

import latentheads.experiments.cli.allocation  # noqa: F401
from latentheads.corpora import Corpus
from latentheads.errors import print_message
from latentheads.experiments.cli.errors import exit_with_error, suggest_option, use_option_names
from latentheads.experiments.cli.groups import (
    OF_RUNS,
    RUN_GROUPS,
    TypedParagraphs,
    arrange_options,
)
from latentheads.experiments.cli.names import (
    expand_words,
    find_own_classes,
    load_yaml,
    named_classes,
    presets,
    spec_of,
)
from latentheads.experiments.cli.needs import find_idle, find_idle_of_guide, refusals
from latentheads.experiments.cli.parser import add_loading_options
from latentheads.files import read_yaml
from latentheads.guides import GUIDES, RECIPES, ModelGuide
from latentheads.models import PRIORS, Prior
from latentheads.runs.loading import load_finished, load_run
from latentheads.runs.recipes import DEFAULTS, NAMED, name_of, own_options, resolve
from latentheads.runs.run import Run
from latentheads.runs.settings import GROUPS, Settings
from latentheads.runs.trainer import Trainer
from latentheads.selection.strategies import STRATEGIES
from latentheads.training.needs import Requirement
from latentheads.values import shown, take_group

__all__ = [
    "Extend",
    "Parser",
    "add_run_options",
    "idle_options",
    "make_parser",
    "make_reader",
    "open_run",
    "read_options",
    "read_settings",
    "refuse_idle",
    "trainer_of",
]


class ConfigFile(ActionConfigFile):
    """An option that reads a file of options; one that holds anything else is named."""

    def __call__(self, parser: Any, found: Any, values: Any, option: str | None = None) -> None:
        """Reads the file; what is no file is left to the parser's own complaint.

        Raises:
            ValueError: It names no options.
        """
        if not values:
            raise ValueError("--config must name a file, got nothing")
        path = os.path.expanduser(values)
        if os.path.isfile(path) and not isinstance(said := read_yaml(Path(path)), dict):
            got = "nothing" if said is None else shown(said)
            raise ValueError(f"{values} must name options with their values, got {got}")
        super().__call__(parser, found, values, option)


class Parser(ArgumentParser):
    """A parser whose errors are one line on stderr and exit status 2; it knows whole names alone.

    Attributes:
        sections: The groups in which its help shows the options.
    """

    sections: Mapping[str, Sequence[str]] = {}

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=TypedParagraphs, allow_abbrev=False, **options)

    def format_help(self) -> str:
        """The help in groups, without the marks that show names in the documentation."""
        arrange_options(self, self.sections)
        return super().format_help().replace("``", "")  # type: ignore[no-any-return]

    def parse_args(self, *given: Any, **more: Any) -> Any:
        """Parses words; an option that is true or false is true where it stands alone.

        A shell leaves the ``~`` of ``--out=~/runs`` as it is.
        """
        for action in self._actions:
            if getattr(action, "_typehint", None) is bool:
                action.nargs, action.const = "?", True
        try:
            found = super().parse_args(*given, **more)
        except OverflowError:  # a whole number of hundreds of digits where a number is wanted
            self.error("a number is too large: at most 1.8e308 is accepted")
        if getattr(found, "out", None):
            found.out = os.path.expanduser(found.out)
        return found

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        """Prints the heart of a message and exits; a parser within another hands it on."""
        if not self.exit_on_error:
            raise argparse.ArgumentError(None, message) from ex
        lines = [line.strip().removeprefix("- ") for line in str(message).splitlines()]
        noise = ("Does not validate", "Subtypes:", "Errors:", "Given value", "Expected a <class 'N")
        heart = " ".join(line for line in lines if line and not line.startswith(noise))
        said = suggest_option(use_option_names(_plain(heart)), self._option_string_actions)
        exit_with_error(self.prog, f"error: {said}")


Extend = Callable[[Parser], None]
"""Adds a program's own options."""


KINDS = {"str": "text, in a file between quotes"}
"""Types of options in words that say what YAML makes of others."""


def _plain(message: str) -> str:
    """A message of the parser with words in place of types."""
    message = re.sub(r'Parser key "(\w+)":', r"--\1:", message)
    message = re.sub(r"--(\w+): Problem with given class_path '(\S+)': (.*)", _own, message)
    message = re.sub(
        r"Expected a <class '(\w+)'>\. Got value:",
        lambda found: f"expected {KINDS.get(found[1], found[1])}, got",
        message,
    )
    return re.sub(
        r"Expected a typing\.Literal\[(.*?)\]\. Got value:", r"choose from \1; got", message
    )


def _own(found: re.Match[str]) -> str:
    """The fault of an option of a guide or a prior, in the words of a command line."""
    kind, path, reason = found.groups()
    known = resolve(path)
    name = name_of(known, NAMED[kind])
    if lacks := re.fullmatch(r"Option '(.*)' is not accepted", reason):
        has = ", ".join(option.name for option in own_options(known)) or "none"
        return f"{kind} {name!r} has no option {lacks[1]!r}; it has {has}"
    if needs := re.fullmatch(r"the following arguments are required: (.*)", reason):
        return f"{kind} {name!r} needs --{kind}.{needs[1].replace(', ', f', --{kind}.')}"
    return re.sub(r"^(unrecognized arguments: )?--", rf"\1--{kind}.", reason)


def add_run_options(parser: Parser, seed: str) -> None:
    """Adds the options of a program that reads finished runs.

    Args:
        parser: The program's.
        seed: What its seed is of.
    """
    parser.add_argument("--seed", type=int, default=0, help=seed)
    add_loading_options(parser)


def make_reader(prog: str, description: str, sections: Mapping[str, Sequence[str]]) -> Parser:
    """Makes the parser of a program that reads several finished runs.

    Args:
        prog: The program's name.
        description: What ``--help`` says it does.
        sections: The groups in which its help shows its own options.
    """
    parser = Parser(prog=prog, usage=f"{prog} [options] RUN [RUN ...]", description=description)
    parser.sections = {**sections, "the runs": (*OF_RUNS, "help")}
    parser.add_argument("runs", type=str, nargs="+", help="folders that run.py wrote")
    return parser


def read_settings(
    arguments: Sequence[str], prog: str, description: str, extend: Extend | None = None
) -> tuple[Settings, Namespace]:
    """Reads a command line; a mistake ends the program with one line and status 2.

    An option on the command line that acts on nothing is a mistake. Files hold many options at
    once: one of theirs is told, and stays at its default.

    Args:
        arguments: The words after the program's name.
        prog: The program's name.
        description: What ``--help`` says it does.
        extend: Adds a program's own options.
    """
    with _reading(arguments, prog, description, extend) as (plain, configuration):
        idle = find_idle(configuration, plain)
        refuse_idle(idle | find_idle_of_guide(configuration), arguments, prog)
        kept = configuration.clone()
        for name in idle:
            kept[name] = plain[name]
        return _make_settings(kept, {name: configuration[name] for name in idle}), configuration


def _make_settings(options: Namespace, unused: Mapping[str, Any]) -> Settings:
    """The settings that a command line says."""
    others = {each.name for each in fields(Settings)} - {*GROUPS, *DEFAULTS, "unused"}
    own: dict[str, Any] = {name: options[name] for name in others}
    own |= {name: take_group(kind, vars(options)) for name, kind in GROUPS.items()}
    own |= {kind: spec_of(kind, options) for kind in DEFAULTS}
    return Settings(**own, unused=unused)


def trainer_of(settings: Settings, options: Namespace, corpus: Corpus | None = None) -> Trainer:
    """The trainer of a command line that was read."""
    return Trainer.of(
        settings,
        corpus,
        out=options.out,
        device=options.device,
        overwrite=options.overwrite,
        tensorboard=options.tensorboard,
        trusted=options.trust,
    )


def open_run(folder: str, options: argparse.Namespace, finished: bool = False) -> Run:
    """Loads the run that a command line names, with the options of :func:`add_run_options`."""
    if options.trust:
        find_own_classes()
    load = load_finished if finished else load_run
    return load(folder, options.checkpoint, options.device, options.trust)


def read_options(
    arguments: Sequence[str], prog: str, description: str, extend: Extend | None = None
) -> Namespace:
    """Reads the options of a program that trains several recipes, as `read_settings` does.

    Which of them act is asked later, of each recipe: see `idle_options`.
    """
    with _reading(arguments, prog, description, extend) as (_, configuration):
        return configuration


def idle_options(
    arguments: Sequence[str], prog: str, extend: Extend | None = None
) -> tuple[dict[str, Requirement], Namespace]:
    """The options of a command line that act on nothing, and the defaults of all."""
    with _reading(arguments, prog, "", extend) as (plain, configuration):
        return find_idle(configuration, plain), plain


def refuse_idle(idle: Mapping[str, Requirement], arguments: Sequence[str], prog: str) -> None:
    """Refuses idle options on the command line, and tells of those in a file.

    Args:
        idle: The options that act on nothing.
        arguments: The command line.
        prog: The program's name; where it is empty nothing is told.
    """
    typed = {word.partition("=")[0].rstrip("+") for word in arguments}
    if refused := refusals({name: need for name, need in idle.items() if f"--{name}" in typed}):
        raise ValueError("; ".join(refused))
    if prog and os.environ.get("RANK", "0") == "0":
        for line in refusals(idle):
            print_message(f"{prog}: note: {line}", sys.stderr)


@contextmanager
def _reading(
    arguments: Sequence[str], prog: str, description: str, extend: Extend | None
) -> Iterator[tuple[Namespace, Namespace]]:
    """Parses a command line; a mistake in it, or in the block, is one line and status 2.

    Yields:
        The defaults of all options, and their values.
    """
    parser, plain = make_parser(prog, description, extend)
    try:
        trusted = named_classes(arguments)
        if trusted:
            find_own_classes()
        set_loader("names", partial(load_yaml, trusted=trusted))
        yield plain, parser.parse_args(expand_words(arguments))
    except (ValueError, TypeError) as mistake:
        parser.error(str(mistake))


@lru_cache(maxsize=8)
def make_parser(prog: str, description: str, extend: Extend | None) -> tuple[Parser, Namespace]:
    """Makes the parser of a program, with its defaults; once, for it takes a while.

    Args:
        prog: The program's name.
        description: What ``--help`` says it does.
        extend: Adds a program's own options.
    """
    set_loader("names", load_yaml)
    usage = f"{prog} [options]"
    parser = Parser(prog=prog, usage=usage, description=description, parser_mode="names")
    parser.sections = RUN_GROUPS
    parser.add_argument("--config", action=ConfigFile, help="YAML file of options")
    parser.add_argument(
        "--preset", type=str, help=f"a YAML file of ours: {', '.join(sorted(presets()))}"
    )
    _add_recipe(parser)
    for group in GROUPS.values():
        parser.add_class_arguments(group, nested_key=None)
    parser.add_class_arguments(Settings, nested_key=None, skip={*GROUPS, *DEFAULTS, "unused"})
    parser.add_argument("--out", type=str, help="run folder (default: runs/RECIPE-seedSEED)")
    parser.add_argument("--overwrite", type=bool, default=False, help="start anew in a used folder")
    parser.add_argument(
        "--tensorboard", type=bool, default=False, help="write TensorBoard's file too"
    )
    parser.add_argument(
        "--device", type=str, default="auto", help="cpu, cuda, or auto: cuda where there is one"
    )
    parser.add_argument(
        "--report",
        type=bool,
        default=False,
        help="write report.html too, a page of what was found, as report.py does",
    )
    parser.add_argument("--verbose", type=bool, default=False, help="print the KL of every site")
    parser.add_argument(
        "--trust",
        type=str,
        help="module:Class, comma between: classes of your own that --config and --start may name; "
        "those that --guide and --prior name are trusted",
    )
    if extend is not None:
        extend(parser)
    return parser, parser.get_defaults()


def _add_recipe(parser: Parser) -> None:
    """Adds the options that name the prior, the guide and their chains."""
    parser.add_argument(
        "--recipe",
        type=str,
        help=f"prior and guide of logits in one word: {', '.join(RECIPES)}; or GUIDE+alignments, "
        "which is the guide alone",
    )
    parser.add_subclass_arguments(
        ModelGuide,
        "guide",
        skip={"model"},
        required=False,
        metavar="NAME",
        help=f"posterior: {', '.join(GUIDES)}, or module:Class for your own; where no prior or "
        "recipe is named, of heads of alignments, whose exact posterior is known (--guide cascaded "
        "is of alignments, --recipe cascaded of logits); a law of "
        f"selection alone or behind a +: {', '.join(STRATEGIES)}",
    )
    parser.add_subclass_arguments(
        Prior,
        "prior",
        required=False,
        metavar="NAME",
        help=f"prior: {', '.join(PRIORS)}, tied for the guide's own form (the paper's choice), or "
        "module:Class for your own",
    )
