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
from typing import Any

from latentheads.checks import check_known, split_items
from latentheads.corpora.hub import HUB, PROSE
from latentheads.data import DATA
from latentheads.errors import shown
from latentheads.files import MAX_DEPTH, read_yaml
from latentheads.guides import RECIPES
from latentheads.latents.registry import LATENTS
from latentheads.options import (
    CLASS,
    Flag,
    OptionError,
    Text,
    join_path,
    merge,
    options_of,
    split_path,
)
from latentheads.runs.settings import check_version, expand_recipe, read_latents

HERE = os.getcwd()
"""Where the program was started."""

PRESETS = Path(str(files("latentheads.experiments"))) / "presets"

SHORT = {"loss": "train.loss"}
"""Options that may be given without their group."""

JOINED = {
    **dict.fromkeys(("network.mixers", "network.windows", "network.ngram_width"), " "),
    "trust": ",",
    "vary": " ",
}
"""What joins the values of an option that may be repeated, as ``encoder=ngram``."""

FILE_OPTIONS = ("preset", "config", "print_config", "help")
"""Options that no file may hold."""

TEXT_OPTIONS = ("preset", "config", "trust", "recipe")
"""Options that are texts, of no group."""

OPTION = re.compile(rf"--(\w+|{'|'.join(map(re.escape, LATENTS))})(\.\w+)*(=|$)")
"""How a word that names an option begins; the name of a latent may have a hyphen."""

FILES = {"train.tsv": "speech", "train.txt": "running-text", "train.txt.gz": "running-text"}
"""What a folder holds, and the data class that reads it; others hold pairs."""


@dataclass(frozen=True)
class CommandLine:
    """What a command line and its files say.

    Attributes:
        options: All options, nested.
        sources: Where they come from, the last one above the others; the words have no name.
        trusted: Classes of the reader's own that he has named.
        left_out: Options of files that the program has not.
        word_options: The options on the command line, before recipe and corpus names are expanded.
        replaced: Options that the program has not, and its own in their place.
    """

    options: dict[str, Any]
    sources: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    trusted: Collection[str] = ()
    left_out: tuple[str, ...] = ()
    word_options: Mapping[str, Any] = field(default_factory=dict)
    replaced: Mapping[str, str] = field(default_factory=dict)

    @property
    def words(self) -> dict[str, Any]:
        """What the words alone say."""
        return self.sources[-1][1]

    def source_of(self, path: str) -> str:
        """The file that an option stands in; empty where it stands on the command line."""
        parts = path.split(".")
        for end in range(len(parts), 0, -1):  # if a group has no such option, the group
            for name, values in reversed(self.sources):
                if _holds(values, parts[:end]):
                    return name
        return ""


def presets() -> dict[str, Path]:
    """The presets that ship with the programs."""
    return {path.stem: path for path in PRESETS.glob("*.yaml")}


def read_command_line(
    words: Sequence[str], replaced: Mapping[str, str] | None = None
) -> CommandLine:
    """Reads the words and the files that they name.

    Raises:
        ValueError: A word is not an option, or a file cannot be read.
    """
    word_options = split_words(words)
    _check_texts(word_options, "--")
    replaced = replaced or {}
    sources = [*_read_files(word_options)]
    left_out = [name for _, values in sources for name in replaced if values.pop(name, None)]
    trusted = _trusted_classes(word_options)
    sources.append(("", word_options))
    options: dict[str, Any] = {}
    for number, (name, values) in enumerate(sources):
        try:
            options, expanded = override(options, values)
        except OptionError as reason:
            raise ValueError(f"{name}: {reason}" if name else f"--{reason}") from reason
        sources[number] = name, expanded
    _check_direction(options.get("data"))
    return CommandLine(options, sources, trusted, tuple(left_out), word_options, replaced)


def override(
    options: dict[str, Any], values: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options with others laid over them; and these with what names in them stand for."""
    expanded = _expand(values, options)
    lower = _keep_shared(_keep_latents(options, expanded), expanded)
    return merge(lower, expanded), expanded


def _check_texts(given: Mapping[str, Any], place: str) -> None:
    """Raises an error for a group where a text is expected."""
    for name in TEXT_OPTIONS:
        value = given.get(name, "")
        if isinstance(value, Flag) or not isinstance(value, str | None):
            raise ValueError(f"{place}{name} must be a text, got {shown(value)}")


def _keep_shared(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Options below a corpus of another class: those that this class has too stay."""
    lower, upper = below.get("data"), above.get("data")
    if not (isinstance(lower, Mapping) and isinstance(upper, Mapping)):
        return below
    kind = DATA.get(str(upper.get(CLASS)))
    if kind is None or upper.get(CLASS) == lower.get(CLASS):
        return below
    shared = {name: value for name, value in lower.items() if name in options_of(kind)}
    return below | {"data": shared | {CLASS: upper[CLASS]}}


def split_words(words: Sequence[str]) -> dict[str, Any]:
    """Nested values of ``--a.b value``, ``--a.b=value`` and of ``--flag``, which is true."""
    nested: dict[str, Any] = {}
    joined: dict[str, Text] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not OPTION.match(word):
            raise ValueError(f"unrecognized argument {shown(word)}: {_explain_word(word)}")
        name, equals, value = word[2:].partition("=")
        if name.count(".") > MAX_DEPTH:
            raise ValueError(f"unrecognized argument {shown(word)}: it has too many dots")
        alone = not equals and (not rest or rest[0].startswith("--"))
        inner: Any = Text(value) if equals else Flag() if alone else Text(rest.pop(0))
        if name in JOINED:
            inner = joined[name] = (
                Text(f"{joined[name]}{JOINED[name]}{inner}") if name in joined else inner
            )
        group, _, option = name.partition(".")
        for part in reversed(join_path(SHORT.get(group, group), option).split(".")):
            inner = {part: inner}
        nested = merge(nested, inner)
    return nested


def _explain_word(word: str) -> str:
    """Why a word names no option."""
    name, *_ = word.partition("=")
    spelled = "--" + name[2:].replace("-", "_")
    if word.startswith("--") and word[2:3].isalpha() and OPTION.match(spelled):
        return f"did you mean {spelled}?"
    return "an option begins with --"


def _read_files(word_options: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The options of the preset and of the file that a command line names."""
    if (name := word_options.pop("preset", None)) is not None:
        table = presets()
        check_known("preset", name, sorted(table))
        yield f"preset {name}", _read_file(table[name])
    if (name := word_options.pop("config", None)) is not None:
        yield str(name), _read_file(Path(name).expanduser())


def _read_file(path: Path) -> dict[str, Any]:
    try:
        options = read_yaml(path)
    except (OSError, ValueError) as reason:
        text = getattr(reason, "strerror", None) or " ".join(str(reason).split())
        raise ValueError(f"--config {path} cannot be read: {text}") from reason
    if not isinstance(options, dict):
        raise ValueError(f"{path} must name options with their values, got {shown(options)}")
    for name in options:
        if not isinstance(name, str):
            raise ValueError(f"{path}: the name of an option must be a text, got {shown(name)}")
        if name in (*FILE_OPTIONS, "trust"):
            raise ValueError(f"{path}: {name} belongs on the command line")
    _check_texts(options, f"{path}: ")
    try:
        check_version(options)
    except ValueError as reason:
        raise ValueError(f"{path}: {reason}") from reason
    return options


def _trusted_classes(word_options: dict[str, Any]) -> frozenset[str]:
    """The classes of the reader's own that the words name: files may name these too."""
    trust = word_options.pop("trust", None)
    names = split_items(trust) if trust is not None else []
    for group, option in (("guide", None), *((name, "prior") for name in LATENTS), ("data", None)):
        value = word_options.get(group)
        if option is not None:
            value = value.get(option) if isinstance(value, Mapping) else None
        name = value.get(CLASS) if isinstance(value, Mapping) else value
        if name is not None and (_is_own(name) or ("." in name and group != "data")):
            names.append(str(name))
    texts = (word_options.get(name) for name in ("recipe", "recipes"))
    recipes = [str(text) for text in texts if isinstance(text, str)]
    words = re.split(r"[+,]", ",".join(recipes))
    names += [word.strip() for word in words if ":" in word or "." in word]
    if names:
        find_own_classes()
    return frozenset(split_path(name) for name in names)


def _is_own(name: str) -> bool:
    """Whether a name is that of a class of the reader's own, ``module:Class``, and of no folder."""
    return ":" in name and os.sep not in name and not os.path.isdir(name)


def find_own_classes() -> None:
    """Lets classes of the reader's own be found where he started the program."""
    if HERE not in sys.path:
        sys.path.insert(0, HERE)


def _expand(values: Mapping[str, Any], below: Mapping[str, Any]) -> dict[str, Any]:
    """Values with what a recipe, or a corpus by its name or folder, stands for."""
    if (recipe := values.get("recipe")) in presets() and recipe not in RECIPES:
        raise OptionError(
            "recipe", f" {shown(recipe)} is not a recipe but a preset: use preset {recipe}"
        )
    expanded = expand_recipe(values)
    data = expanded.get("data")
    name = data.get(CLASS) if isinstance(data, Mapping) else data
    if name is None or isinstance(name, Flag):
        return expanded
    if isinstance(name, list | dict):
        raise OptionError("data", f" must be a name or a folder, got {shown(name)}")
    own = dict(data) if isinstance(data, Mapping) else {}
    lower = below.get("data")
    is_class_of_folders = name in DATA and "folder" in options_of(DATA[name])
    if is_class_of_folders and os.path.isdir(name) and "folder" not in {**(lower or {}), **own}:
        raise OptionError(
            "data", f" {shown(name)} is a class of data: for the folder here say ./{name}"
        )
    return expanded | {"data": own | name_data(str(name), lower and str(lower[CLASS]))}


def name_data(name: str, lower: str | None = None) -> dict[str, Any]:
    """The data class that a name or a path stands for, with the option that holds it.

    Args:
        name: The name, or a folder.
        lower: The class in the file below; it reads the folder where its files do not say another.
    """
    if name.replace("_", "-").lower() in (
        *DATA,
        *(kind.__name__.lower() for kind in DATA.values()),
    ):
        return {CLASS: name}
    if _is_own(name):
        return {CLASS: name}
    if name in HUB:
        return {CLASS: "hub", "corpus": name}
    if name in PROSE:
        return {CLASS: "hub-text", "corpus": name}
    folder = os.path.expanduser(name)
    if not os.path.isdir(folder):
        if os.sep in name:
            raise OptionError("data", f" must be an existing folder, got {shown(name)}")
        choices = ", ".join([*DATA, *HUB, *PROSE])
        raise OptionError("data", f" must be one of {choices}, or a folder; got {shown(name)}")
    plain = lower if lower in DATA and "folder" in options_of(DATA[lower]) else "pairs"
    kind = next((kind for file, kind in FILES.items() if os.path.exists(f"{folder}/{file}")), plain)
    return {CLASS: kind, "folder": name}


def _keep_latents(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Options below others that name the latents: groups of those that they replace go."""
    if "latents" not in above:
        return below
    active = read_latents(above["latents"])
    return {name: value for name, value in below.items() if name not in LATENTS or name in active}


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
        return
    directions = [
        f"--data.source {source} --data.target {target}"
        for source, target in permutations(languages, 2)
    ]
    which = " or ".join(directions) if len(languages) == 2 else "--data.source and --data.target"
    raise OptionError("data", f" {folder!r} has text in {', '.join(languages)}: give {which}")


def _holds(values: Any, parts: Sequence[str]) -> bool:
    """Whether nested values have an option, given the parts of its path."""
    for part in parts:
        if not isinstance(values, Mapping) or part not in values:
            return False
        values = values[part]
    return True
