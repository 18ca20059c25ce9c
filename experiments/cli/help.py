"""Help that a person can scan: the options of a program, and its groups.

``--help`` names every group; ``--data.help pairs`` prints the options of a class, ``--help all``
those of all groups.
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Collection, Mapping
from dataclasses import MISSING
from functools import partial
from typing import Any, Literal, get_args, get_origin

from latentheads.checks import check_choice
from latentheads.experiments.cli.command_line import (
    check_replaced,
    find_own_classes,
    names_option,
    presets,
)
from latentheads.experiments.cli.parser import Formatter, texts_of
from latentheads.latents.registry import LATENTS
from latentheads.options import (
    CLASS_PATH,
    Option,
    OptionError,
    choices_of,
    classes_of,
    flatten,
    in_group,
    inner_kind,
    options_below,
    options_of,
    to_dict,
)
from latentheads.runs.settings import Settings

FIRST = {
    "latents": f"What is random, + between: {', '.join(LATENTS)}, or none.",
    "recipe": "Latents, prior and guide in one word: coda, cascaded+alignments, ...",
    "preset": "A YAML file of ours; --config FILE one of your own.",
}
"""Options that stand for others, with what the help says of them."""

_Page = partial(argparse.ArgumentParser, formatter_class=Formatter, add_help=False)

LAST = {
    "print_config": "Print all options as YAML, and end.",
    "help": "This; --help all shows all options, --data.help pairs those of a class.",
}


def select_help_page(
    word_options: Mapping[str, Any], program: type, prog: str = "", description: str = ""
) -> str | None:
    """The page that ``--help``, ``--help all`` or ``--GROUP.help`` asks for, if one does."""
    help_paths = (path for path in flatten(word_options) if f".{path}".endswith(".help"))
    if (option := next(help_paths, None)) is None:
        return None
    path, name = option[:-5], str(flatten(word_options)[option])
    if not path:
        return help_page(program, prog, description, everything=name == "all")
    replaced = getattr(program, "replaced", {})
    check_replaced({path: None}, replaced)
    kind = options_below([Settings, program]).get(path)
    classes = classes_of(kind)
    if not classes:
        raise OptionError(path, " is not a group of options")
    if "" in classes:
        return class_page(classes[""], path, replaced=replaced)
    if name == "true":
        return choices_page(kind, path)
    if CLASS_PATH.fullmatch(name) and inner_kind(kind).extensible:
        find_own_classes()
        with in_group(path):
            classes = {name: inner_kind(kind).find_class(name, [name])}
    check_choice(f"--{path}.help", name, classes)
    return class_page(classes[name], path, name, replaced)


def help_page(
    program: type, prog: str = "", description: str = "", everything: bool = False
) -> str:
    """The options of a program, and its groups or all that is in them."""
    replaced = getattr(program, "replaced", {})
    texts = texts_of(Settings) | texts_of(program)
    if not everything:
        texts = {name: re.split(r"[;.:](?= |$)", text)[0] + "." for name, text in texts.items()}
    parser = _Page(prog, f"{prog} [options]", description)
    run, groups = parser.add_argument_group("the run"), parser.add_argument_group("groups")
    for name, text in FIRST.items():
        if name not in replaced:
            _add(run, f"--{name}", text)
    options = options_of(program) | options_of(Settings)
    kinds = {name: option.kind for name, option in options.items() if classes_of(option.kind)}
    for name, option in options.items():
        if name not in (*kinds, *FIRST, *replaced):
            _add(run, f"--{name}", texts.get(name, ""), option)
    for name, text in LAST.items():
        _add(run, f"--{name}", text)
    for name, kind in (kinds | LATENTS).items():
        if name not in replaced:
            inner = [n for n in options_below(classes_of(kind).values()) if "." not in n]
            names = ", ".join(n for n in inner if f"{name}.{n}" not in replaced)
            table = choices_of(kind)
            _add(groups, f"--{name}.", names if table is None else f"one of {', '.join(table)}")
    parser.epilog = f"presets: {', '.join(sorted(presets()))}"
    pages = [parser.format_help()]
    for path, kind in options_below([Settings]).items() if everything else ():
        if not any(names_option({path: None}, name) for name in replaced):
            classes = classes_of(kind).items()
            pages += [class_page(inner, path, name, replaced) for name, inner in classes]
    return "\n".join(pages).rstrip()


def choices_page(kind: Any, path: str) -> str:
    """The classes to choose from, a line each, and whether one of your own may be named."""
    parser = _Page("", argparse.SUPPRESS)
    group = parser.add_argument_group(f"--{path}", "One of:")
    for name, option_class in classes_of(kind).items():
        group.add_argument(name, help=_first_line(option_class))
    parser.epilog = f"--{path}.help NAME prints the options of one"
    if inner_kind(kind).extensible:
        parser.epilog += f"; --{path} module:Class takes one of your own, as does the help"
    return parser.format_help()


def class_page(
    option_class: type, path: str, name: str = "", replaced: Collection[str] = ()
) -> str:
    """The options of a class but those replaced, with what its documentation says of them."""
    parser = _Page("", argparse.SUPPRESS)
    group = parser.add_argument_group(f"--{path} {name}".strip(), _first_line(option_class))
    texts = texts_of(option_class)
    for option_name, option in options_of(option_class).items():
        if (whole := f"{path}.{option_name}") not in replaced:
            _add(group, f"--{whole}", texts.get(option_name, ""), option)
    return parser.format_help()


def _first_line(option_class: type) -> str:
    return (inspect.getdoc(option_class) or "").partition("\n")[0].replace("``", "")


def _add(group: Any, name: str, text: str, option: Option | None = None) -> None:
    """Adds a line of help: an option, what it does, what it takes, and its default."""
    kind, default = (inner_kind(option.kind), to_dict(option.default)) if option else (None, None)
    names = choices_of(kind) or (get_args(kind) if get_origin(kind) is Literal else ())
    text += f" One of {', '.join(map(str, names))}." * bool(names)
    if default is MISSING:
        text, default = f"{text} (required)", None
    if isinstance(default, list | dict):
        default = ",".join(map(str, default)) if isinstance(default, list) else default.get("class")
    text = text.strip().replace("%", "%%") or "(default: %(default)s)"
    group.add_argument(name, action="store_true", default=default, help=text)
