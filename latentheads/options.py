"""Options: validated dataclasses, classes that are chosen by name, and errors with their path.

A group of options is a dataclass that `pydantic <https://docs.pydantic.dev>`_ validates. Where a
field is one of several classes (a corpus, an optimizer, a guide) its plain value names the class,
``{"class": "pairs", "folder": "my-texts"}``, or is the name alone. Python, YAML files and command
lines say the same nested values. Nothing is imported that neither the library's own tables nor the
reader names.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from enum import Enum
from functools import cache, partial
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import yaml
from annotated_types import Ge, Gt, Le, Lt
from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError, model_validator
from pydantic.dataclasses import dataclass as validated_dataclass
from pydantic_core import ArgsKwargs, core_schema
from torch import nn

from latentheads.errors import one_line_message, shown
from latentheads.recipes import RECIPES

T = TypeVar("T")
S = TypeVar("S", bound="ClassSpec")
Read = TypeVar("Read", covariant=True)
Given = TypeVar("Given", contravariant=True)

CLASS = "class"
"""The key that names a class among its options."""

NOTHING = (None, "none", "null")

MAX_WIDTH = 2**16
"""Most units of a layer: more do not fit into memory."""

Count = Annotated[int, Ge(1), Lt(2**63)]
Size = Annotated[int, Ge(0), Lt(2**63)]
Width = Annotated[int, Ge(1), Le(MAX_WIDTH)]
Dropout = Annotated[float, Ge(0), Lt(1)]
Probability = Annotated[float, Gt(0), Lt(1)]

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

CONFIG = ConfigDict(extra="forbid", allow_inf_nan=False)


class OptionError(ValueError):
    """A value that an option does not take.

    Attributes:
        path: The option, as ``train.steps``; empty: the whole.
        message: What follows the path: what is accepted, and what was given.
        similar: Options that may have been meant.
    """

    def __init__(self, path: str, message: str, similar: Sequence[str] = ()) -> None:
        hint = f": did you mean {' or '.join(similar)}?" if similar else ""
        super().__init__(f"{path}{message}{hint}" if path else f"{message.lstrip(': ')}{hint}")
        self.path, self.message, self.similar = path, message, tuple(similar)

    def below(self, group: str) -> OptionError:
        """The same error of an option that stands in a group."""
        similar = [join_path(group, name) for name in self.similar]
        return type(self)(join_path(group, self.path), self.message, similar)

    def spelled(self, spell: Callable[[str], str]) -> str:
        """The message with options spelled in another way, as on a command line."""
        similar = [*map(spell, self.similar)]
        return str(OptionError(self.path and spell(self.path), self.message, similar))


class IdleOptionError(OptionError):
    """An option that acts on nothing beside the others, such as on noise where there is none."""


class Text(str):
    """A value from the command line: text that may stand for a number, a list or nothing."""

    __slots__ = ()


class Flag(Text):
    """An option of the command line without a value: true, and nothing else."""

    __slots__ = ()

    def __new__(cls) -> Flag:
        """Makes the text ``true``."""
        return super().__new__(cls, "true")

    def __repr__(self) -> str:
        """How messages show it."""
        return "no value"


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def options_class(*, kw_only: bool = False) -> Callable[[type[T]], type[T]]:
    """Makes a class a frozen dataclass of options, validated however it is made.

    Relations between options are checked in ``__post_init__``, by raising an :class:`OptionError`.

    Example:
        >>> @options_class()
        ... class Sampler:
        ...     num_samples: Count = 5
        >>> from_dict(Sampler, {"num_samples": "7"})
        Sampler(num_samples=7)
        >>> Sampler(num_samples=0)
        Traceback (most recent call last):
        latentheads.options.OptionError: num_samples must be at least 1, got 0
    """

    def decorate(cls: type[T]) -> type[T]:
        cls._read_group = model_validator(mode="before")(_READ_GROUP)  # type: ignore[attr-defined]
        made = validated_dataclass(frozen=True, kw_only=kw_only, config=CONFIG)(cls)
        initialise = made.__init__

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            try:
                initialise(self, *args, **kwargs)
            except ValidationError as error:
                raise explain(error) from None

        __init__.__signature__ = inspect.signature(initialise)  # type: ignore[attr-defined]
        __init__.__annotations__ = initialise.__annotations__
        made.__init__ = __init__  # type: ignore[method-assign]
        return cast(type[T], made)

    return decorate


@dataclass(frozen=True)
class Option:
    """An option of a class.

    Attributes:
        kind: Its annotation, without limits.
        default: Its value where nothing is given; ``MISSING`` where it has to be.
    """

    kind: Any
    default: Any


@cache
def options_of(kind: Any) -> dict[str, Option]:
    """The options of a class by name: the fields of a dataclass, or arguments of a constructor."""
    made = kind if is_dataclass(kind) else arguments_class(kind)
    hints = get_type_hints(made)
    return {
        option.name: Option(
            hints[option.name],
            option.default if option.default_factory is MISSING else option.default_factory(),
        )
        for option in fields(made)
        if option.init
    }


def changed_options(group: Any) -> list[str]:
    """The names of the options of a group that are not at their default."""
    options = options_of(cast(Any, type(group)))
    return [name for name, option in options.items() if getattr(group, name) != option.default]


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


def join_path(*parts: object) -> str:
    """The path of an option from those of its groups; an empty part adds nothing."""
    return ".".join(str(part) for part in parts if part != "")


# reading: from nested plain values to objects


def from_dict(kind: type[T], value: Any, trusted: Collection[str] = (), path: str = "") -> T:
    """Options from nested plain values; those not given stay at their default.

    Args:
        kind: A dataclass of options, or a choice of them.
        value: As :func:`to_dict` gives them.
        trusted: Classes of the reader's own that the values may name, as ``module:Class``.
        path: Where the values stand, for messages.

    Raises:
        OptionError: The first that is not an option, has another kind of value, or is out of range.
    """
    try:
        return _validate(kind, value, trusted)
    except ValidationError as error:
        raise explain(error).below(path) from None


def read_record(kind: type[T], value: Any, name: str) -> T:
    """A dataclass from what JSON holds of it; names that it does not have are ignored.

    Args:
        kind: The dataclass.
        value: What JSON holds.
        name: What it is, for the message.
    """
    try:
        return _adapter(cast(Hashable, kind)).validate_python(value)
    except ValidationError as error:
        raise explain(error).below(name) from None


@cache
def _adapter(kind: Any) -> Any:
    return TypeAdapter(kind)


def _validate(kind: type[T], value: Any, trusted: Collection[str]) -> T:
    return cast(
        T, _adapter(cast(Hashable, kind)).validate_python(value, context={"trusted": trusted})
    )


KINDS: dict[str, str] = {
    **dict.fromkeys(
        ("int_type", "int_parsing", "int_from_float", "int_parsing_size"), "a whole number"
    ),
    **dict.fromkeys(("float_type", "float_parsing"), "a number"),
    "finite_number": "a finite number",
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
    "string_type": "a text",
    **dict.fromkeys(("tuple_type", "list_type"), "a list"),
    **dict.fromkeys(("dict_type", "mapping_type"), "a mapping"),
    "dataclass_type": "a group of options",
}
"""What is accepted, by the type of pydantic's error."""


def explain(error: ValidationError) -> OptionError:
    """The first mistake that pydantic found, as one line with its path."""
    first = error.errors(include_url=False)[0]
    # an alternative of a union stands in pydantic's path as the name of its type
    path = join_path(*(part for part in first["loc"] if part not in ("str", "int")))
    reason = first.get("ctx", {}).get("error")
    if isinstance(reason, OptionError):
        return reason.below(path)
    if reason is not None:
        return OptionError(path, f": {reason}")
    return OptionError(path, _describe_mistake(first["type"], first.get("ctx", {}), first))


def _describe_mistake(mistake: str, limits: Mapping[str, Any], first: Mapping[str, Any]) -> str:
    given = first["input"]
    if mistake in ("missing", "missing_argument", "missing_keyword_only_argument"):
        return " is missing"
    if mistake in KINDS:
        return f" must be {KINDS[mistake]}, got {shown(given)}"
    for limit, words in (("ge", "at least"), ("le", "at most"), ("gt", "above"), ("lt", "below")):
        if limit in limits:
            return f" must be {words} {_in_digits(limits[limit])}, got {_in_digits(given)}"
    return f": {first['msg']}, got {shown(given)}"


def _in_digits(number: Any) -> str:
    """A number as a message shows it: a large whole one with commas."""
    if isinstance(number, float):
        return f"{number:g}"
    return f"{number:,}" if isinstance(number, int) else str(number)


def _read_group(cls: Any, value: Any) -> Any:
    """The values of a group by name, before they are validated."""
    if isinstance(value, ArgsKwargs):
        return ArgsKwargs((), _read_values(cls, _bind(cls, value.args, value.kwargs or {})))
    if isinstance(value, cls):
        return value
    values = _as_mapping(value)
    if CLASS in values:
        values[_first_required(cls)] = values.pop(CLASS)
    return _read_values(cls, values)


_READ_GROUP: Any = classmethod(_read_group)


def _bind(cls: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by name, as a call binds them."""
    names = [option.name for option in fields(cls) if option.init and not option.kw_only]
    if len(args) > len(names):
        raise OptionError("", f"{cls.__name__} takes {len(names)} positional arguments")
    for name in names[: len(args)]:
        if name in kwargs:
            raise OptionError(name, " is given twice")
    return dict(zip(names, args, strict=False)) | {str(n): value for n, value in kwargs.items()}


def _read_values(cls: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    options = options_of(cls)
    for name in values:
        if name not in options:
            raise _explain_unknown(cls, str(name))
    read = {}
    for name, value in values.items():
        try:
            read[name] = _read_value(options[name], value)
        except OptionError as error:
            raise error.below(name) from None
    return read


def _read_value(option: Option, value: Any) -> Any:
    """A value as Python or YAML would have it, where numpy or a command line gave it."""
    kind = inner_kind(option.kind)
    if isinstance(value, Mapping) and choices_of(kind) is not None and CLASS not in value:
        return merge(to_dict(option.default), value)  # the class of the default
    if NoneType in get_args(option.kind) and isinstance(value, str) and value in NOTHING:
        return None
    if type(value).__module__ == "numpy" and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool | Flag) and kind in (int, float):
        raise OptionError("", f" must be {NUMBERS[kind]}, got {value!r}")
    if isinstance(value, Path) and kind is str:
        return str(value)
    if get_origin(kind) is Literal and value not in get_args(kind):
        words = ", ".join(map(str, get_args(kind)))
        raise OptionError("", f" must be one of {words}; got {shown(value)}")
    return _read_text(kind, value) if isinstance(value, Text) else value


NUMBERS = {int: "a whole number", float: "a number"}


def _read_text(kind: Any, value: Text) -> Any:
    """The value that a text of the command line stands for."""
    if isinstance(value, Flag):
        if is_group(kind):
            raise OptionError("", " must be a name, got no value")
        if kind is not bool:
            raise OptionError("", f" must be a text, got {value!r}")
        return True
    if is_group(kind):
        return value  # which of its options it is meant for says how it is read
    text = str(value)
    if get_origin(kind) in (list, tuple):
        items = text.strip().removeprefix("[").removesuffix("]").split(",")
        return [item.strip() for item in items if item.strip()]
    if get_origin(kind) in (dict, Mapping):
        return yaml.safe_load(text)
    return text


def _as_mapping(value: Any) -> dict[str, Any]:
    """A name that stands for a class with its defaults, as a group."""
    return {} if value is None else dict(value) if isinstance(value, Mapping) else {CLASS: value}


def _first_required(kind: Any) -> str:
    """The option that a value alone is meant for: the first one, where it has to be given."""
    name, option = next(iter(options_of(kind).items()))
    if option.default is not MISSING:
        raise OptionError("", " is a group of options", list(options_of(kind))[:3])
    return name


def _explain_unknown(kind: Any, name: str) -> OptionError:
    """What an unknown option may have meant: of this class, or of which classes it is."""
    if instead := getattr(kind, "moved", {}).get(name):
        return OptionError(name, f" is not an option: it is {instead} now")
    names = [*options_of(kind), *_more_groups(kind)]
    others = [
        other
        for other, option_class in (choices_of(kind) or {}).items()
        if is_dataclass(option_class) and name in options_of(option_class)
    ]
    alias = OPTION_ALIASES.get(name, "").rpartition(".")[2]
    similar = [alias] if alias in names else get_close_matches(name, names, 1, 0.75)
    below = dict.fromkeys(name_options_below(kind))
    similar = similar or [path for path in below if path.endswith(f".{name}")][:3]
    if not similar and others:
        what = f" is not an option of {_name_of_kind(kind)}, but of {', '.join(others)}"
        return OptionError(name, what)
    similar = similar or list(dict.fromkeys(_nested_names(kind, name)))[:3]
    choices = "" if similar else f": choose from {', '.join(names) or 'none'}"
    return OptionError(name, f" is not an option{choices}", similar)


def _name_of_kind(kind: Any) -> str:
    """The name of a class among its choices."""
    table = choices_of(kind) or {}
    return next((name for name, choice in table.items() if choice is kind), "this group")


def _more_groups(kind: Any) -> Mapping[str, Any]:
    """Groups that a class takes besides those of its fields."""
    return kind.more_groups() if hasattr(kind, "more_groups") else {}


def _nested_names(kind: Any, name: str) -> Iterator[str]:
    """Options below a class that are called so, or nearly so, those called so first."""
    paths = list(name_options_below(kind))
    yield from (path for path in paths if path.rpartition(".")[2] == name)
    inner = dict.fromkeys(path.rpartition(".")[2] for path in paths)
    for close in get_close_matches(name, inner, 2, 0.75):
        yield from (path for path in paths if path.rpartition(".")[2] == close)


def name_options_below(kind: Any, path: str = "") -> Iterator[str]:
    """The paths of all options of the groups of a class."""
    kinds = {name: option.kind for name, option in options_of(kind).items()}
    for name, inner in {**kinds, **_more_groups(kind)}.items():
        where = join_path(path, name)
        table = choices_of(inner)
        for option_class in table.values() if table is not None else [inner_kind(inner)]:
            if is_dataclass(option_class):
                yield from (f"{where}.{option_name}" for option_name in options_of(option_class))
                yield from name_options_below(option_class, where)


# writing: from objects to nested plain values


def to_dict(value: Any) -> Any:
    """Options as YAML and JSON have them."""
    if hasattr(value, "to_options"):
        return to_dict(value.to_options())
    if isinstance(value, Mapping):
        return {str(name): to_dict(item) for name, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        group = {} if choices_of(type(value)) is None else {CLASS: name_of_class(value)}
        return group | {name: to_dict(getattr(value, name)) for name in options_of(type(value))}
    if isinstance(value, list | tuple):
        return [to_dict(item) for item in value]
    if isinstance(value, Enum):
        return value.name
    return str(value) if isinstance(value, Path) else value


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
        flat |= flatten(inner, join_path(path, name))
    return flat


# classes that options name

if TYPE_CHECKING:

    class Coerced(Generic[Read, Given]):
        """A field that is given as one type, such as a name, and read as another, its class."""

        def __get__(self, instance: object, owner: type) -> Read: ...
        def __set__(self, instance: object, value: Read | Given) -> None: ...

else:

    class Coerced:
        """A field that is given as one type, such as a name, and read as another, its class.

        ``prior: Coerced[Prior, Literal["chain"]]`` is ``prior: Prior`` to pydantic, which reads the
        name. A type checker and an editor take the name for an argument too.
        """

        def __class_getitem__(cls, kinds: tuple[Any, Any]) -> Any:
            """What the field is read as."""
            return kinds[0]


class Choice:
    """Base of the classes that an option chooses among, by the name in a table.

    Attributes:
        extensible: Whether a class of the reader's own may be named too, as ``module:Class``.
    """

    extensible: ClassVar[bool] = False

    @classmethod
    def choices(cls) -> Mapping[str, type]:
        """The classes by name."""
        raise TypeError(f"{cls.__name__} names no classes")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """An abstract class stands for its choices, a concrete one for its own options."""
        if not inspect.isabstract(source):
            return handler(source)

        def choose(value: Any, info: Any) -> Any:
            return _choose(source, value, (info.context or {}).get("trusted", ()))

        return core_schema.with_info_plain_validator_function(choose)


def _choose(base: Any, value: Any, trusted: Collection[str]) -> Any:
    """An object of one of the classes below a base, from a name or from a name with options."""
    table = base.choices()
    if isinstance(value, base):
        if type(value) in table.values() or base.extensible:
            return value
        raise OptionError("", f" must be one of {', '.join(table)}; got {shown(value)}")
    options = _as_mapping(value)
    name = options.pop(CLASS, "none" if value is None else "")
    if isinstance(name, Flag):
        raise OptionError("", " must be a name, got no value")
    return _validate(_select_class(base, table, str(name), trusted), options, trusted)


def _select_class(
    base: type, table: Mapping[str, type], name: str, trusted: Collection[str]
) -> type:
    spelled = name.replace("_", "-").lower()
    for choice, option_class in table.items():
        if spelled in (choice.replace("_", "-").lower(), option_class.__name__.lower()):
            return option_class
    extensible = getattr(base, "extensible", False)
    if ":" in name and extensible:
        return import_trusted(base, name, trusted)
    own = ", or module:Class for your own" * extensible
    raise OptionError("", f" must be one of {', '.join(table)}{own}; got {shown(name)}")


def name_of_class(value: Any) -> str:
    """The name of an object's class among its choices; for one of the reader's own, its path.

    Raises:
        ValueError: No file can name it.
    """
    return name_of(type(value), choices_of(type(value)) or {})


def name_of(own: type, table: Mapping[str, type]) -> str:
    """The name of a class in a table; for one of the reader's own, its path.

    Raises:
        ValueError: No file can name it.
    """
    for name, kind in table.items():
        if kind is own:
            return name
    if "." in own.__qualname__:
        raise ValueError(
            f"{own.__qualname__} is made inside another class or a function, where no run folder "
            "finds it: define it at the top of its module"
        )
    return import_path(own)


def import_path(own: type) -> str:
    """The name of a class as ``module:Class``."""
    return f"{own.__module__}:{own.__qualname__}"


def split_path(name: str) -> str:
    """``module:Class`` from this or from ``module.Class``."""
    parts = str(name).replace(":", ".").split(".")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        raise OptionError("", f" must be module:Class, an import path, got {shown(name)}")
    return f"{'.'.join(parts[:-1])}:{parts[-1]}"


def import_trusted(base: type, name: str, trusted: Collection[str]) -> type:
    """Imports a class of the reader's own, and checks that it can stand for its base class.

    Args:
        base: The class that it extends.
        name: Its name, as ``module:Class`` or ``module.Class``.
        trusted: The classes that may be imported, as ``module:Class``.

    Raises:
        OptionError: It is not trusted, cannot be imported, or is none.
    """
    path = split_path(name)
    if path not in trusted:
        raise OptionError(
            "",
            f" {shown(name)} is none of this library's, and a file may import nothing; if the "
            f"class is yours, say so: trust {path}",
        )
    module, _, class_name = path.partition(":")
    try:
        own_class = getattr(importlib.import_module(module), class_name)
    except Exception as reason:
        root = module.partition(".")[0]
        unseen = isinstance(reason, ModuleNotFoundError) and reason.name == root
        where = f"; start in the folder of {root}.py, or name it in PYTHONPATH" if unseen else ""
        message = " ".join(str(reason).split())
        raise OptionError("", f" {shown(path)} cannot be imported: {message}{where}") from reason
    if not (isinstance(own_class, type) and issubclass(own_class, base)):
        base_path = f"{base.__module__}.{base.__name__}"
        raise OptionError("", f" {shown(path)} must be a subclass of {base_path}")
    if inspect.isabstract(own_class):
        missing = ", ".join(sorted(getattr(own_class, "__abstractmethods__", ())))
        raise OptionError("", f" {shown(path)} is abstract: it must define {missing}")
    return own_class


# classes with a constructor, whose arguments are options


def own_options(kind: type) -> list[inspect.Parameter]:
    """The arguments of a constructor beside the model."""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(kind).parameters.values()
    return [p for p in parameters if p.kind not in variable and p.name != "model"]


@cache
def arguments_class(kind: type) -> Any:
    """A dataclass of the arguments of a constructor; one without a type has that of its default.

    Raises:
        OptionError: A file cannot hold one of them.
    """
    try:
        hints = get_type_hints(kind.__init__)  # type: ignore[misc]
    except (NameError, TypeError):
        hints = {}
    members: dict[str, Any] = {"__annotations__": {}}
    for option in own_options(kind):
        required = option.default is option.empty
        if required and option.annotation is option.empty:
            raise OptionError(
                option.name, f" needs a type or a default, as {option.name}: float = 1.0"
            )
        like = type(option.default)
        hint = hints.get(option.name, like if like in (bool, int, float, str) else Any)
        members["__annotations__"][option.name] = hint
        if not required:
            members[option.name] = field(default_factory=partial(_identity, option.default))
    arguments = type(kind.__name__, (), members)
    try:
        return options_class(kw_only=True)(arguments)
    except PydanticUserError as error:
        raise OptionError("", f" {import_path(kind)!r}: {one_line_message(error)}") from error


def _identity(value: T) -> T:
    return value


@dataclass(frozen=True, eq=False)
class ClassSpec:
    """A class by its name, and the arguments of its constructor, the model aside.

    Attributes:
        name: One of the library's, or ``module:Class``.
        options: Those that were given; the others are at their default.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    kind: ClassVar[str]
    base: ClassVar[type]
    extensible: ClassVar[bool] = True
    needs_model: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not isinstance(self.options, Mapping):
            raise TypeError(
                f"{self.kind} needs a name and a mapping of options, got {shown(self.name)}, "
                f"{shown(self.options)}"
            )

    def __eq__(self, other: object) -> bool:
        """Whether both stand for one class with one value of every option, given or by default."""
        if not isinstance(other, ClassSpec) or (type(self), self.name) != (type(other), other.name):
            return False
        return to_dict(self.options) == to_dict(other.options) or to_dict(self) == to_dict(other)

    def __hash__(self) -> int:
        """As the name: options at their default may be given or not."""
        return hash((type(self), self.name))

    @classmethod
    def choices(cls) -> Mapping[str, type]:
        """The library's classes by name."""
        raise TypeError(f"{cls.__name__} names no classes")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Made from a name, or from a name with options."""

        def read(value: Any, info: Any) -> Any:
            return cls.read(value, (info.context or {}).get("trusted", ()))

        return core_schema.with_info_plain_validator_function(read)

    @classmethod
    def read(cls: type[S], value: Any, trusted: Collection[str] = ()) -> S:
        """Reads a name, or a name with options.

        Args:
            value: One of these, or an object of this class.
            trusted: Classes of the reader's own that may be named; nothing else is imported.

        Raises:
            OptionError: There is no such class, or it is not trusted or has no such option.
        """
        if isinstance(value, cls):
            options, name, trusted = dict(value.options), value.name, [value.name]
        else:
            options = _as_mapping(value)
            name = options.pop(CLASS, "")
        if isinstance(name, Flag) or not isinstance(name, str):
            raise OptionError("", f" must be the name of a {cls.kind}, got {shown(name)}")
        found = cls._find(name, trusted)
        given = _validate(arguments_class(found), options, trusted)
        return cls(name_of(found, cls.choices()), {name: getattr(given, name) for name in options})

    def to_options(self) -> dict[str, Any]:
        """The name and all options, so that a default that changes later changes no old run."""
        defaults = {name: option.default for name, option in options_of(self.find()).items()}
        named = {name: value for name, value in defaults.items() if value is not MISSING}
        return {CLASS: self.name, **named, **self.options}

    @classmethod
    def of(cls: type[S], component: Any) -> S:
        """The name and the options of an object.

        Raises:
            ValueError: No file can say it: an option is not a plain value, or the class cannot be
                found by its module and its name.
        """
        for name, value in component.options.items():
            if isinstance(value, nn.Module):
                raise ValueError(
                    f"{cls.kind} {type(component).__name__} calls its model {name!r}: its first "
                    "argument must be called model"
                )
            if not is_plain(value):
                raise ValueError(
                    f"{cls.kind} option {name!r} is of type {type(value).__name__}: a run folder "
                    "holds numbers, texts and lists of them"
                )
        return cls(name_of(type(component), cls.choices()), component.options)

    def find(self) -> Any:
        """The class; that of the reader's own was imported when its name was read.

        Raises:
            OptionError: There is none.
        """
        return self._find(self.name, [self.name])

    @classmethod
    def _find(cls, name: str, trusted: Collection[str]) -> type:
        table = cls.choices()
        if name in table:
            return table[name]
        if ":" not in name and "." not in name:
            if name in RECIPES:
                raise OptionError("", f" {shown(name)} is a recipe: use recipe {name}")
            return _select_class(cls, table, name, trusted)
        path = split_path(name)
        library = {import_path(choice): choice for choice in table.values()}
        return library[path] if path in library else cls._import(name, trusted)

    @classmethod
    def _import(cls, name: str, trusted: Collection[str]) -> type:
        own = import_trusted(cls.base, name, trusted)
        if cls.needs_model and next(iter(inspect.signature(own).parameters), "model") != "model":
            raise OptionError("", f" {shown(name)}: its first argument must be called model")
        return own


def is_plain(value: Any) -> bool:
    """Whether a file can hold a value: a number, a text, nothing, or a list of them."""
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    return to_dict(value) is None or isinstance(to_dict(value), bool | int | float | str)
