"""Help that a person can scan: the options of a program, and its groups.

``--help`` names every group; ``--data.help pairs`` prints the options of a class, ``--help all``
those of all groups.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, is_dataclass
from typing import Any, Literal, get_args, get_origin

from latentheads.experiments.cli.command_line import presets
from latentheads.latents.registry import LATENTS
from latentheads.options import (
    ClassSpec,
    Option,
    OptionError,
    choices_of,
    inner_kind,
    is_group,
    options_of,
    to_dict,
)
from latentheads.runs.settings import Settings

WIDTH = 99

TITLE = "the run:"

FIRST = {
    "latents": f"What is random, + between: {', '.join(LATENTS)}, or none.",
    "recipe": "Latents, prior and guide in one word: coda, cascaded+alignments, ...",
    "preset": "A YAML file of ours; --config FILE one of your own.",
}
"""Options that stand for others, with what the help says of them."""

LAST = {
    "print_config": "Print all options as YAML, and end.",
    "help": "This; --help all shows all options, --data.help pairs those of a class.",
}


def select_help_page(word_options: dict[str, Any], program: type) -> str | None:
    """The page that ``--help``, ``--help all`` or ``--GROUP.help`` asks for, if one does."""
    for path, name in _requested_help(word_options):
        if not path:
            return help_page(program, everything=name == "all")
        kind = _kind_at(path, program)
        table = choices_of(kind)
        if table is None:
            return class_page(inner_kind(kind), path)
        if name == "true":
            return choices_page(table, path, getattr(inner_kind(kind), "extensible", False))
        if name not in table:
            raise OptionError(f"{path}.help", f" must be one of {', '.join(table)}; got {name}")
        return class_page(table[name], path)
    return None


def _requested_help(word_options: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """Where help is asked for, and the name behind it."""
    for name, value in word_options.items():
        if name == "help":
            yield path, str(value)
        elif isinstance(value, Mapping):
            yield from _requested_help(value, f"{path}.{name}" if path else name)


def _kind_at(path: str, program: type) -> Any:
    """The annotation of an option; of a choice of classes the first that has the option."""
    groups: dict[str, Any] = {
        n: o.kind for n, o in {**options_of(Settings), **options_of(program)}.items()
    }
    groups |= LATENTS
    kind: Any = None
    for part in path.split("."):
        kinds = [kind] if kind is not None else []
        if kind is not None and (table := choices_of(kind)) is not None:
            kinds = list(table.values())
        tables = [options_of(inner_kind(k)) for k in kinds if is_dataclass(inner_kind(k))]
        options = {n: o.kind for table in tables for n, o in table.items()} if kind else groups
        if part not in options:
            raise OptionError(path, " is not a group of options")
        kind = options[part]
    if not is_group(kind):
        raise OptionError(path, " is not a group of options")
    return kind


def help_page(program: type, everything: bool = False) -> str:
    """The options of a program, and its groups or all that is in them."""
    replaced = getattr(program, "replaced", {})
    settings = {n: o for n, o in options_of(Settings).items() if n not in ("latents", *replaced)}
    plain = {n: o for n, o in settings.items() if not is_group(o.kind)}
    groups: dict[str, Any] = {n: o.kind for n, o in settings.items() if is_group(o.kind)}
    texts = {**texts_of(Settings), **texts_of(program)}
    if not everything:
        texts = {name: re.split(r"[;.:](?= |$)", text)[0] + "." for name, text in texts.items()}
    lines = [TITLE]
    lines += [_line(f"--{name}", text) for name, text in FIRST.items() if name not in replaced]
    lines += [_line(f"--{n}", texts.get(n, ""), o) for n, o in options_of(program).items()]
    lines += [_line(f"--{name}", texts.get(name, ""), option) for name, option in plain.items()]
    lines += [_line(f"--{name}", text) for name, text in LAST.items()]
    for name, kind in {**groups, **LATENTS}.items():
        if everything:
            lines += ["", f"{name}: {texts.get(name) or _first_line(inner_kind(kind))}"]
            lines += _all_of_group(name, kind, set())
        else:
            lines += [] if name != next(iter(groups)) else ["", "groups:"]
            lines.append(_line(f"--{name}.", _names_of_group(name, kind, replaced)))
    lines += ["", _wrap(f"presets: {', '.join(sorted(presets()))}", "", "  ")]
    return "\n".join(lines)


def _names_of_group(group: str, kind: Any, replaced: Mapping[str, str]) -> str:
    """What a group is: the classes to choose from, or the names of its options."""
    table = choices_of(kind)
    if table is not None:
        return f"one of {', '.join(table)}"
    return ", ".join(n for n in options_of(inner_kind(kind)) if f"{group}.{n}" not in replaced)


def _all_of_group(name: str, kind: Any, shown: set[str]) -> Iterator[str]:
    """All options of a group, and below them those of the groups in it that are not shown yet."""
    for choice, option_class in (choices_of(kind) or {"": inner_kind(kind)}).items():
        if choice:
            yield f"  --{name} {choice}:"
        yield from _option_lines(option_class, name)
        for option, inner in options_of(option_class).items():
            if is_group(inner.kind) and (path := f"{name}.{option}") not in shown:
                shown.add(path)
                yield from _all_of_group(path, inner.kind, shown)


def choices_page(table: Mapping[str, type], path: str, extensible: bool = False) -> str:
    """The classes to choose from, a line each, and whether one of your own may be named."""
    lines = [_line(name, _first_line(option_class)) for name, option_class in table.items()]
    last = [f"--{path}.help NAME prints the options of one"]
    last += [f"--{path} module:Class takes one of your own"] * extensible
    return "\n".join([f"{path}: one of", *lines, *last])


def class_page(option_class: type, path: str) -> str:
    """The options of a class, with what its documentation says of them."""
    return "\n".join([f"{path}: {_first_line(option_class)}", *_option_lines(option_class, path)])


def _option_lines(option_class: type, path: str) -> Iterator[str]:
    """A line for each option of a class."""
    texts, prefix = texts_of(option_class), f"--{path}." if path else "--"
    for name, option in options_of(option_class).items():
        table = choices_of(option.kind)
        more = f" One of {', '.join(table)}." if table is not None else ""
        yield _line(f"{prefix}{name}", texts.get(name, "") + more, option)


def _first_line(option_class: type) -> str:
    return (inspect.getdoc(option_class) or "").partition("\n")[0].replace("``", "")


def _line(name: str, text: str, option: Option | None = None) -> str:
    """An option, what it does, what it takes, and its default."""
    kind = inner_kind(option.kind) if option else None
    literal = (
        f" One of {', '.join(map(str, get_args(kind)))}." if get_origin(kind) is Literal else ""
    )
    default = ""
    if option is not None and option.default is MISSING:
        default = " (required)"
    elif option is not None and not _is_empty(option.default):
        value = option.default.name if isinstance(option.default, ClassSpec) else None
        short = value or to_dict(option.default)
        short = ",".join(map(str, short)) if isinstance(short, list) else short
        default = f" (default: {short.get('class', '') if isinstance(short, dict) else short})"
    return _wrap(f"{text}{literal}{default}", f"  {name:18} ", " " * 21)


def _is_empty(default: Any) -> bool:
    """Whether a default need not be shown; 0, which equals False, is shown."""
    return default is False or default in (None, "", (), {})


def _wrap(text: str, first: str = "  ", then: str = "  ") -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent=first, subsequent_indent=then, break_on_hyphens=False
    )


def fill_paragraphs(text: str) -> str:
    """Paragraphs of a description, each wrapped; one that is indented stays as it is."""
    parts = text.strip("\n").split("\n\n")
    return "\n\n".join(part if part.startswith("  ") else _wrap(part, "", "") for part in parts)


def texts_of(option_class: type) -> dict[str, str]:
    """What the documentation of a class and of its bases says of its options."""
    texts: dict[str, str] = {}
    for base in reversed(option_class.__mro__):
        for page in (base.__doc__, base.__init__.__doc__):  # type: ignore[misc]
            for title in ("Attributes", "Args"):
                _, _, rows = inspect.cleandoc(page or "").partition(f"\n{title}:\n")
                entries = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", rows.split("\n\n")[0], re.M)
                texts |= {name: " ".join(text.split()).replace("``", "") for name, text in entries}
    return texts
