"""Options as nested plain values, and back: one shape for Python, YAML files and command lines.

A group of options is a dataclass. Where a field is one of several classes (a corpus, an optimizer,
a guide) the plain value names it, ``{"class": "pairs", "folder": "my-texts"}``, or is the name
alone. Nothing is imported that neither the library's own tables nor the reader names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from latentheads.own_classes import import_path, import_trusted
from latentheads.values import Flag, convert, plain, shown

T = TypeVar("T")

CLASS = "class"
"""The key that names a class among its options."""

NOTHING = (None, "none", "null")


class OptionError(ValueError):
    """A value that an option does not take; its message begins with the option's path."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}{message}")
        self.path = path


@dataclass(frozen=True)
class Option:
    """An option of a class.

    Attributes:
        kind: Its annotation.
        default: Its value where nothing is given; ``MISSING`` where it has to be.
    """

    kind: Any
    default: Any


@lru_cache
def options_of(kind: Any) -> dict[str, Option]:
    """The options of a dataclass by name."""
    hints = get_type_hints(kind)
    return {
        field.name: Option(
            hints[field.name],
            field.default if field.default_factory is MISSING else field.default_factory(),
        )
        for field in fields(kind)
        if field.init
    }


def inner_kind(kind: Any) -> Any:
    """An annotation without its ``| None``."""
    if get_origin(kind) in (Union, UnionType):
        inner = [argument for argument in get_args(kind) if argument is not NoneType]
        return inner[0] if len(inner) == 1 else kind
    return kind


def choices_of(kind: Any) -> Mapping[str, type] | None:
    """The classes by name that an annotation chooses among; None where it is no such."""
    table = getattr(inner_kind(kind), "choices", None)
    return None if table is None else table()


def is_group(kind: Any) -> bool:
    """Whether an annotation is a group of options, or a choice of classes that have some."""
    return is_dataclass(inner_kind(kind)) or choices_of(kind) is not None


def name_of_class(value: Any) -> str:
    """The name of an object's class among its choices; for one of the reader's own, its path.

    Raises:
        ValueError: It has none.
    """
    table, own = choices_of(type(value)) or {}, type(value)
    names = [name for name, kind in table.items() if kind is own]
    if not names and "." in own.__qualname__:
        raise ValueError(
            f"{own.__qualname__} is made inside another class or a function, where no run folder "
            "finds it: define it at the top of its module"
        )
    return names[0] if names else import_path(own)


def to_dict(value: Any) -> Any:
    """Options as YAML and JSON have them."""
    if hasattr(value, "to_options"):
        return plain(value.to_options())
    if isinstance(value, Mapping):
        return {name: to_dict(item) for name, item in value.items()}
    if not is_dataclass(value):
        return plain(value)
    group = {} if choices_of(type(value)) is None else {CLASS: name_of_class(value)}
    return group | {name: to_dict(getattr(value, name)) for name in options_of(type(value))}  # type: ignore[arg-type]


def from_dict(kind: type[T], value: Any, trusted: Collection[str] = (), path: str = "") -> T:
    """Options from nested plain values; those not given stay at their default.

    Args:
        kind: A dataclass of options.
        value: As :func:`to_dict` gives them.
        trusted: Classes of the reader's own that the values may name, as ``module:Class``.
        path: Where the values stand, for messages.

    Raises:
        OptionError: The first that is not an option, has another kind of value, or is out of range.
    """
    return _build(kind, value, trusted, path)  # type: ignore[no-any-return]


def merge(below: Any, above: Any) -> Any:
    """Nested values with others laid over them; another class takes no option of the first."""
    if not isinstance(below, Mapping) and not isinstance(above, Mapping):
        return above
    if not isinstance(above, Mapping) and above in NOTHING:
        return None
    lower, upper = _as_mapping(below), _as_mapping(above)
    if CLASS in upper and upper[CLASS] != lower.get(CLASS, upper[CLASS]):
        return upper
    both = {
        name: merge(lower[name], value) if name in lower else value for name, value in upper.items()
    }
    return lower | both


def flatten(value: Any, path: str = "") -> dict[str, Any]:
    """Nested values side by side, under names such as ``data.folder``."""
    if not isinstance(value, Mapping):
        return {path: value}
    flat: dict[str, Any] = {}
    for name, inner in value.items():
        flat |= flatten(inner, f"{path}.{name}" if path else str(name))
    return flat


def _as_mapping(value: Any) -> dict[str, Any]:
    """A name that stands for a class with its defaults, as a group."""
    return {} if value is None else dict(value) if isinstance(value, Mapping) else {CLASS: value}


def _build(kind: Any, value: Any, trusted: Collection[str], path: str) -> Any:
    """A value as its annotation wants it."""
    optional = NoneType in get_args(kind)
    kind = inner_kind(kind)
    if not is_group(kind):
        return _convert(kind if not optional else kind | None, value, path)
    if optional and not isinstance(value, Mapping) and value in NOTHING:
        return None
    if choices_of(kind) is not None:
        return _build_choice(kind, value, trusted, path)
    if hasattr(kind, "read_options"):
        return kind.read_options(value, trusted, path)
    options = _as_mapping(value)
    if CLASS in options:
        options[_first_required(kind, path)] = options.pop(CLASS)
    return build_fields(kind, options, trusted, path)


def _first_required(kind: Any, path: str) -> str:
    """The option that a value alone is meant for: the first one, where it has to be given."""
    name, option = next(iter(options_of(kind).items()))
    if option.default is not MISSING:
        names = ", ".join(f"{path}.{option_name}" for option_name in list(options_of(kind))[:3])
        raise OptionError(path, f" is a group of options: name one of them, as {names}")
    return name


def _build_choice(kind: Any, value: Any, trusted: Collection[str], path: str) -> Any:
    options = _as_mapping(value)
    name = options.pop(CLASS, "none" if value is None else "")
    if isinstance(name, Flag):
        raise OptionError(path, " must be a name, got no value")
    name = "none" if name is None else str(name)
    if hasattr(kind, "from_options"):
        try:
            return kind.from_options(name, options, trusted)
        except OptionError:
            raise
        except ValueError as reason:
            raise _locate(reason, path, [f"{kind.kind}.{option}" for option in options]) from reason
    return build_fields(_select_class(kind, name, trusted, path), options, trusted, path)


def _select_class(kind: Any, name: str, trusted: Collection[str], path: str) -> type:
    table = choices_of(kind) or {}
    normalised = name.replace("_", "-").lower()
    for choice, option_class in table.items():
        if normalised in (choice, option_class.__name__.lower()):
            return option_class
    if ":" in name and getattr(kind, "extensible", False):
        try:
            return import_trusted(path, kind, name, trusted)
        except ValueError as reason:
            raise OptionError(path, str(reason).removeprefix(path)) from reason
    raise OptionError(path, f" must be one of {', '.join(table)}; got {shown(name)}")


def build_fields(
    kind: Any, raw_values: Mapping[str, Any], trusted: Collection[str], path: str
) -> Any:
    """A dataclass of some of its options; a class that is named in a choice keeps its defaults."""
    options, values = options_of(kind), {}
    for name, value in raw_values.items():
        where = f"{path}.{name}" if path else str(name)
        if name not in options:
            raise OptionError(where, _explain_unknown(kind, str(name), path))
        option = options[name]
        if choices_of(option.kind) and isinstance(value, Mapping) and CLASS not in value:
            value = merge(to_dict(option.default), value)
        values[name] = _build(option.kind, value, trusted, where)
    for name, option in options.items():
        if option.default is MISSING and name not in values:
            raise OptionError(f"{path}.{name}" if path else name, " is missing")
    return _make(kind, values, path)


def _make(kind: Any, values: Mapping[str, Any], path: str) -> Any:
    """Makes a group; its complaints begin with the path of the option that they name."""
    try:
        return kind(**values)
    except OptionError:
        raise
    except ValueError as reason:
        raise _locate(reason, path, options_of(kind)) from reason


def _locate(reason: ValueError, path: str, names: Collection[str]) -> OptionError:
    """An error of a group, at the path of the option that its message begins with."""
    message = str(reason)
    word = message.partition(" ")[0].rstrip(":")
    first = word if word in names else word.partition(".")[0]
    if first in names:
        own = first.rpartition(".")[2]
        return OptionError(f"{path}.{own}" if path else own, message[len(first) :])
    if path and message.startswith(f"{(last := path.rpartition('.')[2])} '"):
        return OptionError(path, message.removeprefix(last))  # the path names the option already
    return OptionError(path, f": {message}" if path else message)


def _convert(kind: Any, value: Any, path: str) -> Any:
    try:
        return convert(path, kind, value)
    except ValueError as reason:
        raise OptionError(path, str(reason).removeprefix(path)) from reason


def _explain_unknown(kind: Any, name: str, path: str) -> str:
    """What an unknown option may have meant: of this class, or of which classes it is."""
    names = [*options_of(kind), *_more_groups(kind)]
    if close := get_close_matches(name, names, 1, 0.75):
        return f" is not an option: did you mean {path}.{close[0]}?".replace(" .", " ")
    others = [
        other
        for other, option_class in (choices_of(kind) or {}).items()
        if is_dataclass(option_class) and name in options_of(option_class)
    ]
    if others:
        return f" is not an option of {name_of_kind(kind)}, but of {', '.join(others)}"
    below = [] if path else list(dict.fromkeys(_nested_names(kind, name)))
    if below:
        return f" is not an option: did you mean {' or '.join(below[:3])}?"
    return f" is not an option: choose from {', '.join(names) or 'none'}"


def name_of_kind(kind: Any) -> str:
    """The name of a class among its choices."""
    return next(
        (name for name, option_class in (choices_of(kind) or {}).items() if option_class is kind),
        "this group",
    )


def _more_groups(kind: Any) -> Mapping[str, Any]:
    """Groups that a class takes besides those of its fields."""
    return kind.more_groups() if hasattr(kind, "more_groups") else {}


def _nested_names(kind: Any, name: str, path: str = "") -> Iterator[str]:
    """Options below a class that are called so, or nearly so, those called so first."""
    paths = list(name_options_below(kind, path))
    yield from (nested for nested in paths if nested.rpartition(".")[2] == name)
    inner = dict.fromkeys(nested.rpartition(".")[2] for nested in paths)
    for close in get_close_matches(name, inner, 2, 0.75):
        yield from (nested for nested in paths if nested.rpartition(".")[2] == close)


def name_options_below(kind: Any, path: str = "") -> Iterator[str]:
    """The paths of all options of the groups of a class."""
    kinds = {name: option.kind for name, option in options_of(kind).items()}
    for name, inner in {**kinds, **_more_groups(kind)}.items():
        where = f"{path}.{name}" if path else name
        tables = choices_of(inner)
        classes = list(tables.values()) if tables is not None else [inner_kind(inner)]
        for option_class in filter(is_dataclass, classes):
            yield from (f"{where}.{option_name}" for option_name in options_of(option_class))
            yield from name_options_below(option_class, where)
