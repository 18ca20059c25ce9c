"""Conversion of plain values: to the type of an annotation, to YAML and to JSON."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from enum import Enum
from functools import lru_cache
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from latentheads.errors import shorten
from latentheads.files import parse_yaml

T = TypeVar("T")
LISTS = (list, tuple, Sequence)

KINDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    Path: "a path",
}
"""Names of types in messages."""

OPTION_ALIASES = {
    **{"lr": "train.learning_rate", "batch_size": "train.tokens"},
    **{"per_device_train_batch_size": "train.tokens", "max_steps": "train.steps"},
    **{"epochs": "train.steps", "num_epochs": "train.steps", "max_epochs": "train.steps"},
    **{"num_train_epochs": "train.steps", "num_steps": "train.steps"},
    **{"gradient_accumulation_steps": "train.accumulate", "max_grad_norm": "train.clip"},
    **{"optim": "train.optimizer", "optimiser": "train.optimizer"},
    **{"warmup": "train.warmup_steps", "lr_scheduler_type": "train.schedule"},
    **{"num_beams": "decode.beam", "beam_size": "decode.beam"},
    **{"max_new_tokens": "decode.max_tokens", "min_new_tokens": "decode.min_tokens"},
    **{"no_repeat_ngram_size": "decode.no_repeat"},
    **{"hidden_size": "network.width", "d_model": "network.width"},
    **{"num_layers": "network.layers", "num_heads": "network.heads"},
    **{"output": "out", "output_dir": "out"},
    **{"prior": "logits.prior", "latent": "latents", "task": "data"},
    **{"select": "selection.strategy", "alignment_heads": "alignments.heads"},
}
"""Names of options in other programs, and in earlier versions, and the option here."""

PLURALS: dict[Any, str] = {int: "whole numbers", float: "numbers", str: "texts", Path: "paths"}


class CommandLineText(str):
    """A value from the command line: text that may represent a number or a list."""

    __slots__ = ()


class Flag(CommandLineText):
    """A command-line option without a value: true; it converts to no other type."""

    __slots__ = ()

    def __new__(cls) -> Flag:
        """Makes the text ``true``."""
        return super().__new__(cls, "true")

    def __repr__(self) -> str:
        """How messages show it."""
        return "no value"


def convert(name: str, annotation: Any, value: Any) -> Any:
    """Converts a value to the type of an annotation; other annotations leave it unchanged.

    Args:
        name: Its name, for the message.
        annotation: A number, a text, a Path, an Enum, a Literal, a list of these, or a union.
        value: The value from a file or a caller.
    """
    try:
        return _convert(annotation, value)
    except (TypeError, ValueError, KeyError, OverflowError):
        raise ValueError(f"{name}{_wanted(annotation)} {shown(value)}") from None


def convert_fields(group: Any) -> None:
    """Converts the fields of a dataclass of options to the types of their annotations.

    Args:
        group: The options, frozen or not; changed in place.
    """
    for name, annotation in _hints_of(type(group)).items():  # type: ignore[arg-type]
        value = getattr(group, name)
        if not is_dataclass(annotation):
            object.__setattr__(group, name, convert(name, annotation, value))
        elif not isinstance(value, annotation):  # type: ignore[arg-type]
            raise ValueError(f"{name}{_wanted(annotation)} {shown(value)}")
        elif (table := _closed_choices(annotation)) and type(value) not in table.values():
            raise ValueError(f"{name} must be one of {_join(table)}; got {shown(value)}")


def _closed_choices(annotation: Any) -> dict[str, type]:
    """The classes by name that an annotation chooses among; none where it takes others too."""
    extensible = getattr(annotation, "extensible", False)
    table = annotation.choices() if hasattr(annotation, "choices") and not extensible else {}
    return {name: kind for name, kind in table.items() if issubclass(kind, annotation)}


@lru_cache
def _hints_of(kind: type) -> dict[str, Any]:
    """The annotations of the fields of a dataclass."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def make_group(options_class: type[T], options: Mapping[str, Any]) -> T:
    """Makes a dataclass of options from names and values; omitted ones have their default."""
    hints = _hints_of(options_class)  # type: ignore[arg-type]
    validate_option_names(options, hints)
    return options_class(
        **{name: convert(name, hints[name], value) for name, value in options.items()}
    )


def take_group(options_class: type[T], options: Mapping[str, Any]) -> T:
    """Makes a dataclass of options, ignoring names it does not have; see :func:`make_group`."""
    hints = _hints_of(options_class)  # type: ignore[arg-type]
    return make_group(
        options_class, {name: value for name, value in options.items() if name in hints}
    )


def plain(value: Any) -> Any:
    """Converts a value for YAML: a tuple to a list, a path or a member of an Enum to text."""
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def finite(value: Any) -> Any:
    """Converts a value for JSON: NaN and infinity, which JSON lacks, become None."""
    if isinstance(value, dict):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def validate_option_names(names: Collection[str], choices: Collection[str]) -> None:
    """Raises an error for the first unknown name, with a suggestion."""
    for name in names:
        if name not in choices:
            alias = OPTION_ALIASES.get(str(name), "").rpartition(".")[2]
            close = [alias] if alias in choices else get_close_matches(str(name), choices)
            accepted = (
                f"did you mean {close[0]}?" if close else f"it must be one of {_join(choices)}"
            )
            raise ValueError(f"unknown option {shown(name)}: {accepted}")


def _join(names: Iterable[str]) -> str:
    return ", ".join(names)


def _convert(annotation: Any, value: Any) -> Any:
    """Converts a value; raises ValueError or TypeError if it has another type."""
    origin = get_origin(annotation)
    if isinstance(value, CommandLineText):
        value = _parse_text(annotation, origin, value)
    if origin in (Union, UnionType):
        return _convert_union(get_args(annotation), value)
    if origin is Literal:
        choices = get_args(annotation)
        return choices[choices.index(_require(value in choices, value))]
    if origin in (dict, Mapping):
        return _convert_mapping(get_args(annotation), value)
    if is_dataclass(annotation) and isinstance(annotation, type):
        if isinstance(value, annotation):
            return value
        return take_group(annotation, _require(isinstance(value, dict), value))
    if origin in LISTS:
        return _convert_list(origin, get_args(annotation), value)
    if annotation is str and isinstance(value, Path):
        return str(value)
    if annotation is bool and isinstance(value, np.bool_):
        return bool(value)
    if annotation is str:
        return str.__str__(_require(isinstance(value, str), value))  # numpy has texts of its own
    if annotation in (bool, NoneType):
        return _require(isinstance(value, annotation), value)
    if annotation is int:
        return int(_require(isinstance(value, Integral) and not isinstance(value, bool), value))
    if annotation is float:
        return _convert_float(value)
    if annotation is Path:
        return Path(_require(isinstance(value, str | Path), value))
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return value if isinstance(value, annotation) else annotation[value]
    return value


def _parse_text(annotation: Any, origin: Any, word: CommandLineText) -> Any:
    """Parses a command-line value as the type of an annotation."""
    text = str(word)
    if isinstance(word, Flag):
        _require(annotation is bool or origin in (Union, UnionType), word)
    if origin in LISTS:
        items = text.strip().removeprefix("[").removesuffix("]").split(",")
        return [CommandLineText(item.strip()) for item in items if item.strip()]
    if origin in (dict, Mapping):
        return parse_yaml(text)
    if annotation is bool:
        return {"true": True, "yes": True, "false": False, "no": False}[text.lower()]
    if annotation is int:
        return int(text)
    if annotation is NoneType:
        return _require(text in ("none", "null"), None)
    return word if origin in (Union, UnionType) else text


def _require(met: bool, value: Any) -> Any:
    if not met:
        raise TypeError
    return value


def _convert_float(value: Any) -> float:
    """A number; YAML reads 1e-3, which has no point, as a text."""
    _require(isinstance(value, Real | str) and not isinstance(value, bool), value)
    number = float(value)
    return float(_require(not (isinstance(value, str) and not math.isfinite(number)), number))


def _convert_union(kinds: Sequence[Any], value: Any) -> Any:
    for kind in sorted(kinds, key=lambda kind: kind is float):  # a whole number stays one
        try:
            return _convert(kind, value)
        except (TypeError, ValueError, KeyError):
            continue
    raise TypeError


def _convert_list(origin: Any, kinds: Sequence[Any], value: Any) -> Any:
    _require(isinstance(value, list | tuple), value)
    kind = kinds[0] if kinds else Any
    return (tuple if origin is tuple else list)(_convert(kind, item) for item in value)


def _convert_mapping(kinds: Sequence[Any], value: Any) -> dict[str, Any]:
    _require(isinstance(value, dict), value)
    kind = kinds[1] if kinds else Any
    return {str(name): _convert(kind, item) for name, item in value.items()}


def _wanted(annotation: Any) -> str:
    """The first part of an error message: the type of an annotation, up to "got"."""
    if get_origin(annotation) is Literal:
        return f" must be one of {_join(map(str, get_args(annotation)))}; got"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return f" must be one of {_join(plural.name for plural in annotation)}; got"
    if get_origin(annotation) in LISTS:
        inner = get_args(annotation)
        plural = PLURALS.get(inner[0], _kind_name(inner[0])) if inner else "values"
        return f" must be a list of {plural}, got"
    kinds = [annotation]
    if get_origin(annotation) in (Union, UnionType):
        kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
    return f" must be {' or '.join(map(_kind_name, kinds))}, got"


def _kind_name(annotation: Any) -> str:
    kind_name = "a mapping" if get_origin(annotation) in (dict, Mapping) else KINDS.get(annotation)
    return kind_name or str(getattr(annotation, "__name__", annotation))


def shown(value: Any) -> str:
    """A value in a one-line message; its type if its repr has several lines."""
    text = repr(value)
    if len(text.splitlines()) > 1:
        return type(value).__name__
    return shorten(text)


def describe_change(name: str, there: Any, here: Any) -> str:
    """A value of an option in a folder, and the one that is wanted; an empty text is quoted."""
    old, new = (repr(value) if value == "" else value for value in (there, here))
    return f"{name} {old} there, {new} here"
