"""The words of a command line as nested values: files, presets and short names.

``--data pairs --data.folder F`` is ``{"data": {"class": "pairs", "folder": "F"}}``, the shape that
a YAML file and :func:`latentheads.options.from_dict` have too. A preset lies below a file, and a
file below the words.
"""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import permutations
from pathlib import Path
from types import MappingProxyType
from typing import Any

from latentheads.checks import check_choice
from latentheads.corpora.hub import HUB, PROSE
from latentheads.data.base import Data
from latentheads.errors import shown
from latentheads.experiments.cli.errors import name_options
from latentheads.files import read_yaml, reading_file
from latentheads.latents.registry import LATENTS
from latentheads.options import (
    CLASS,
    CLASS_PATH,
    Flag,
    OptionError,
    Text,
    flatten,
    from_dict,
    join_path,
    merge,
    options_class,
    options_of,
)
from latentheads.recipes import RECIPES
from latentheads.runs.folder import HEADS
from latentheads.runs.settings import expand_recipe, read_latents, trusted_paths

SHORT = {"loss": "train.loss"}
"""Options that may be given without their group."""

JOINED = {
    **dict.fromkeys(("network.mixers", "network.windows", "network.ngram_width"), " "),
    "trust": ",",
    "vary": " ",
}
"""What joins the values of an option that may be repeated, as ``encoder=ngram``."""

FILE_OPTIONS = ("preset", "config", "print_config", "help", "trust")
"""Options that no file may hold."""

OPTION = re.compile(r"--\w[\w-]*(\.\w[\w-]*)*(=|$)")
"""How a word that names an option begins; a hyphen stands for an underscore."""

DATA = dict(Data.choices())
DATA_NAMES = {*DATA, *(kind.__name__.lower() for kind in DATA.values())}

FILES = {"train.tsv": "speech", "train.txt": "running-text", "train.txt.gz": "running-text"}
"""What a folder holds, and the data class that reads it; others hold pairs."""


@dataclass(frozen=True)
class CommandLine:
    """What a command line and its files say.

    Attributes:
        options: All options, nested.
        sources: Where they come from, the last one above the others; the words have no name.
        trusted: Classes of the reader's own that he has named.
        left_out: Options of files that the program has not, and the file of each.
        replaced: Options that the program has not, and its own in their place.
    """

    options: dict[str, Any]
    sources: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    trusted: Collection[str] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    replaced: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> dict[str, Any]:
        """What the words alone say."""
        return self.sources[-1][1]

    def source_of(self, path: str) -> str:
        """The file that an option, or else its group, stands in; empty: the command line."""
        while path:
            for name, values in reversed(self.sources):
                if names_option(values, path):
                    return name
            path = path.rpartition(".")[0]
        return ""


@options_class()
class FileOptions:
    """The options that name files, which are read before all others.

    Attributes:
        preset: A file of ours, by its name.
        config: A file of the user's.
    """

    preset: str | None = None
    config: str | None = None


def names_option(values: Mapping[str, Any], path: str) -> bool:
    """Whether nested values name an option, or one in the group that stands at a path."""
    return any(f"{option}.".startswith(f"{path}.") for option in flatten(values))


def without_options(values: Mapping[str, Any], paths: Collection[str]) -> dict[str, Any]:
    """Nested values without some options or groups of them."""
    kept = {}
    for name, value in values.items():
        if name in paths:
            continue
        inner = [p.removeprefix(f"{name}.") for p in paths if p.startswith(f"{name}.")]
        is_group = inner and isinstance(value, Mapping)
        kept[name] = without_options(value, inner) if is_group else value
    return kept


def check_replaced(values: Mapping[str, Any], replaced: Mapping[str, str]) -> None:
    """Raises an error for an option that a program has not, with its own in its place."""
    for path, instead in replaced.items():
        if names_option(values, path):
            here = f": here use --{instead}" if instead else ""
            guides = ", whose guides have their defaults or are classes of your own"
            raise ValueError(f"--{path} belongs to run.py{here}{guides * (path == 'guide')}")


def presets() -> dict[str, Path]:
    """The presets that ship with the programs."""
    folder = Path(str(files("latentheads.experiments"))) / "presets"
    return {path.stem: path for path in folder.glob("*.yaml")}


def read_command_line(
    words: Sequence[str], replaced: Mapping[str, str] | None = None
) -> CommandLine:
    """Reads the words and the files that they name.

    Raises:
        ValueError: A word is not an option, or a file cannot be read.
    """
    word_options, replaced = split_words(words), replaced or {}
    for name in ("latents", "recipe", "trust"):  # texts, of which "true" could be one
        if isinstance(word_options.get(name), Flag):
            raise OptionError(name, " needs a value")
    word_options.pop("print_config", None)
    trusted = _trusted_classes(word_options)
    check_replaced(word_options, replaced)
    given = [*_read_files(word_options)]
    left_out = {
        path: source for source, values in given for path in replaced if names_option(values, path)
    }
    sources = [(source, without_options(values, replaced)) for source, values in given]
    sources.append(("", word_options))
    options: dict[str, Any] = {}
    for number, (name, values) in enumerate(sources):
        try:
            options, expanded = override(options, values)
        except ValueError as reason:
            raise ValueError(f"{name}: {reason}" if name else name_options(reason)) from reason
        sources[number] = name, expanded
    _check_direction(options.get("data"))
    return CommandLine(options, sources, trusted, left_out, replaced)


def override(
    options: dict[str, Any], values: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options with others laid over them; and these with what names in them stand for."""
    expanded = _expand(values, options.get("data") or {})
    return merge(_keep_below(options, expanded), expanded), expanded


def split_words(words: Sequence[str]) -> dict[str, Any]:
    """Nested values of ``--a.b value``, ``--a.b=value`` and of ``--flag``, which is true."""
    nested: dict[str, Any] = {}
    given: dict[str, Text] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not OPTION.match(word):
            raise ValueError(f"unrecognized argument {shown(word)}: an option begins with --")
        name, equals, value = word[2:].partition("=")
        parts = [part if part in LATENTS else part.replace("-", "_") for part in name.split(".")]
        name = ".".join(parts)
        alone = not equals and (not rest or rest[0].startswith("--"))
        inner: Any = Text(value) if equals else Flag() if alone else Text(rest.pop(0))
        if name in JOINED and name in given:
            inner = Text(f"{given[name]}{JOINED[name]}{inner}")
        given[name] = inner
        group, _, option = name.partition(".")
        for part in reversed(join_path(SHORT.get(group, group), option).split(".")):
            inner = {part: inner}
        nested = merge(nested, inner)
    return nested


def _trusted_classes(word_options: dict[str, Any]) -> Collection[str]:
    """The classes of the reader's own that the words name anywhere: files may name these too."""
    named = {*trusted_paths(word_options.pop("trust", None))}
    for text in flatten(word_options).values():
        named |= {path for path in re.split(r"[+,]\s*", str(text)) if _is_own(path)}
    if named:
        find_own_classes()
    return frozenset(named)


def _is_own(name: str) -> bool:
    """Whether a name is that of a class of the reader's own, ``module:Class``, and of no folder."""
    return bool(CLASS_PATH.fullmatch(name)) and not os.path.isdir(name)


def find_own_classes() -> None:
    """Finds classes of a user's own in the folder where the program was started."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def _read_files(word_options: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The options of the preset and of the file that a command line names."""
    given = {name: word_options.pop(name) for name in ("preset", "config") if name in word_options}
    named = from_dict(FileOptions, given)
    if named.preset is not None:
        table = presets()
        check_choice("preset", named.preset, sorted(table))
        yield f"preset {named.preset}", _read_file(table[named.preset])
    if named.config is not None:
        path = Path(named.config).expanduser()
        options = _read_file(path)
        _check_heads(path, word_options.get("start", options.get("start")), word_options)
        yield named.config, options


def _check_heads(path: Path, start: object, word_options: Mapping[str, Any]) -> None:
    """Checks that a run has the heads of the network whose configuration it takes.

    Which heads a pruned network has is no option: they come from the run that training starts with.
    """
    heads = path.parent / HEADS
    folders = [start] if word_options.get("overwrite") else [start, word_options.get("out")]
    named = [Path(str(folder)).expanduser() / HEADS for folder in folders if folder]
    if heads.exists() and not any(
        other.exists() and other.read_bytes() == heads.read_bytes() for other in named
    ):
        raise ValueError(f"--config {path} is of a pruned network: add --start {path.parent}")


def _read_file(path: Path) -> dict[str, Any]:
    with reading_file(path):
        options = read_yaml(path)
    if not isinstance(options, dict) or not all(isinstance(name, str) for name in options):
        raise ValueError(f"{path} must name options with their values, got {shown(options)}")
    for name in options:
        if name in FILE_OPTIONS:
            raise ValueError(f"{path}: {name} belongs on the command line")
    return options


def _expand(values: Mapping[str, Any], below: Mapping[str, Any]) -> dict[str, Any]:
    """Values with what a recipe, or a corpus by its name or folder, stands for."""
    if (recipe := str(values.get("recipe"))) in presets() and recipe not in RECIPES:
        raise OptionError("recipe", f" {shown(recipe)} is a preset", [f"preset {recipe}"])
    expanded = expand_recipe(values)
    data = merge({}, expanded.get("data", {})) or {}
    if CLASS not in data or isinstance(data[CLASS], Flag):
        return expanded
    return expanded | {"data": data | name_data(str(data[CLASS]), below)}


def name_data(name: str, below: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """The data class that a name or a folder stands for, with the option that holds it.

    Args:
        name: The name, or the folder.
        below: Options of data in the file below; their class reads the folder where its files do
            not say another.
    """
    if _is_own(name) or name.replace("_", "-").lower() in DATA_NAMES:
        return {CLASS: name}
    if name in (*HUB, *PROSE):
        return {CLASS: "hub" if name in HUB else "hub-text", "corpus": name}
    folder = os.path.expanduser(name)
    if not os.path.isdir(folder):
        named = [choice for choice in DATA if choice != "in-memory"]  # no options make it
        choices = f"one of {', '.join([*named, *HUB, *PROSE])}, or a folder;"
        accepted = "an existing folder," if os.sep in name else choices
        raise OptionError("data", f" must be {accepted} got {shown(name)}")
    plain = below[CLASS] if _reads_folders(below.get(CLASS)) else "pairs"
    kind = next((kind for file, kind in FILES.items() if os.path.exists(f"{folder}/{file}")), plain)
    return {CLASS: kind, "folder": name}


def _check_direction(data: Any) -> None:
    """Raises an error for a folder of pairs that can be translated in several directions."""
    is_pairs = isinstance(data, Mapping) and data.get(CLASS) == "pairs"
    if not is_pairs or {"source", "target", "tasks"} & data.keys() or "folder" not in data:
        return
    folder, stem = str(data["folder"]), str(data.get("train_name", "train"))
    files = Path(folder).expanduser().glob(f"{glob.escape(stem)}.*")
    names = (file.name.removesuffix(".gz").removeprefix(f"{stem}.") for file in files)
    languages = sorted(set(names))
    if len(languages) < 2:
        if not os.path.isdir(os.path.expanduser(folder)):
            return
        missing = f"no {stem}.LANGUAGE of two languages, no train.txt and no train.tsv"
        raise OptionError("data", f" {folder!r} has {missing}")
    directions = [
        f"--data.source {source} --data.target {target}"
        for source, target in permutations(languages, 2)
    ]
    which = " or ".join(directions) if len(languages) == 2 else "--data.source and --data.target"
    raise OptionError("data", f" {folder!r} has text in {', '.join(languages)}: give {which}")


def _reads_folders(name: Any) -> bool:
    return name in DATA and "folder" in options_of(DATA[name])


def _keep_below(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """What others leave of options: no group of a latent, or option of data, that they have not."""
    if "latents" in above:
        dropped = LATENTS.keys() - read_latents(above["latents"])
        below = {name: value for name, value in below.items() if name not in dropped}
    # greedy decoding has no hypotheses to rank
    if str(flatten(above).get("decode.num_beams")) == "1":
        beams = below.get("decode") or {}
        kept = {name: value for name, value in beams.items() if name != "length_penalty"}
        below = below | {"decode": kept}
    lower, upper = below.get("data") or {}, above.get("data") or {}
    name = upper.get(CLASS, lower.get(CLASS)) if isinstance(upper, Mapping) else None
    if name not in DATA or name == lower.get(CLASS):
        return below
    shared = {option: value for option, value in lower.items() if option in options_of(DATA[name])}
    return below | {"data": shared | {CLASS: name}}
