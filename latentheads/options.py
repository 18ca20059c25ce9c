"""Options: validated dataclasses, classes that are chosen by name, and errors with their path.

A group of options is a dataclass that `pydantic <https://docs.pydantic.dev>`_ validates. Where a
field is one of several classes (a corpus, an optimizer, a guide) its plain value names the class,
``{"class": "pairs", "folder": "my-texts"}``, or is the name alone. Python, YAML files and command
lines say the same nested values. Nothing is imported that neither the library's own tables nor the
reader names.
"""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from functools import cache, partial, wraps
from pathlib import Path
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Generic,
    TypeVar,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from annotated_types import Ge, Gt, Le, Lt
from pydantic import (
    ConfigDict,
    JsonValue,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic.dataclasses import dataclass as validated_dataclass
from pydantic_core import ArgsKwargs, core_schema

from latentheads.checks import MAX_WIDTH
from latentheads.errors import one_line_message, shown
from latentheads.plain import parse_yaml
from latentheads.plugins import load_options
from latentheads.recipes import RECIPES

T = TypeVar("T")
Read = TypeVar("Read", covariant=True)
Given = TypeVar("Given", contravariant=True)

CLASS = "class"
"""The key that names a class among its options."""

CLASS_PATH = re.compile(r"(\w+\.)*\w+:\w+")
"""A user-defined class, ``module:Class``."""

NOTHING = (None, "none", "null")

Count = Annotated[int, Ge(1), Lt(2**63)]
Size = Annotated[int, Ge(0), Lt(2**63)]
Width = Annotated[int, Ge(1), Le(MAX_WIDTH)]
Dropout = Annotated[float, Ge(0), Lt(1)]
Probability = Annotated[float, Gt(0), Lt(1)]

ADAPTER_OF: Any = cache(TypeAdapter)

OPTION_ALIASES = {
    **{"lr": "train.learning_rate", "batch_size": "train.tokens"},
    **{"per_device_train_batch_size": "train.tokens", "max_steps": "train.steps"},
    **{"epochs": "train.steps", "num_epochs": "train.steps", "max_epochs": "train.steps"},
    **{"num_train_epochs": "train.steps", "num_steps": "train.steps"},
    **{"gradient_accumulation_steps": "train.accumulate", "max_grad_norm": "train.clip"},
    **{"optim": "train.optimizer", "optimiser": "train.optimizer"},
    **{"warmup": "train.warmup_steps", "lr_scheduler_type": "train.schedule"},
    **{"beam": "decode.num_beams", "beams": "decode.num_beams", "beam_size": "decode.num_beams"},
    **{"max_tokens": "decode.max_new_tokens", "min_tokens": "decode.min_new_tokens"},
    **{"max_length": "decode.max_new_tokens", "no_repeat": "decode.no_repeat_ngram_size"},
    **{"draws": "decode.num_samples", "samples": "num_samples"},
    **{"hidden_size": "network.width", "d_model": "network.width"},
    **{"num_layers": "network.layers", "num_heads": "network.heads"},
    **{"output": "out", "output_dir": "out", "report_to": "trackers", "tensorboard": "trackers"},
    **{"prior": "logits.prior", "latent": "latents", "task": "data"},
    **{"select": "selection.strategy", "alignment_heads": "alignments.heads", "chains": "blocks"},
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


@contextmanager
def in_group(group: str) -> Iterator[None]:
    """Places the option of an error in a group."""
    try:
        yield
    except OptionError as error:
        raise error.below(group) from None


class UnusedOptionError(OptionError):
    """An option that nothing has, or that acts on nothing beside the others, as on absent noise."""


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

    def decorate(cls: Any) -> Any:
        cls._read_values = model_validator(mode="before")(cast(Any, classmethod(_read_values)))
        made = validated_dataclass(frozen=True, kw_only=kw_only, config=CONFIG)(cls)
        initialise, signature = made.__init__, inspect.signature(made)

        @wraps(initialise)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            if len(args) > sum(p.kind < p.KEYWORD_ONLY for p in signature.parameters.values()):
                raise TypeError(f"{cls.__name__}: give options by name, not {shown(args[-1])}")
            try:  # by name, as _read_values reads them
                initialise(self, **signature.bind_partial(*args).arguments, **kwargs)
            except ValidationError as error:
                raise explain(error) from None

        made.__init__ = __init__  # type: ignore[method-assign]
        return made

    return decorate


@dataclass(frozen=True)
class Option:
    """An option of a class: its annotation without limits, and its default or ``MISSING``."""

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


def inner_kind(kind: Any) -> Any:
    """An annotation without its ``| None``."""
    inner = [argument for argument in get_args(kind) if argument is not NoneType]
    return inner[0] if len(inner) == 1 and NoneType in get_args(kind) else kind


def choices_of(kind: Any) -> Mapping[str, type] | None:
    """The classes by name that an annotation chooses among; None where it is no such."""
    table = getattr(inner_kind(kind), "choices", None)
    return None if table is None else table()


def classes_of(kind: Any) -> Mapping[str, Any]:
    """The classes by name that an annotation chooses among, or the one that it is, without."""
    group = inner_kind(kind)
    return choices_of(kind) or ({"": group} if is_dataclass(group) else {})


def options_below(classes: Iterable[type], group: str = "") -> dict[str, Any]:
    """The annotations of all options of classes and of the groups in them, by path."""
    options: dict[str, Any] = {}
    for option_class in classes:
        kinds = {name: option.kind for name, option in options_of(option_class).items()}
        for name, kind in (kinds | getattr(option_class, "more_groups", dict)()).items():
            path = join_path(group, name)
            options |= {path: kind} | options_below(classes_of(kind).values(), path)
    return options


def changed_options(group: Any) -> list[str]:
    """The names of the options of a group that are not at their default."""
    options = options_of(cast(Any, type(group)))
    return [name for name, option in options.items() if getattr(group, name) != option.default]


def join_path(*parts: object) -> str:
    """The path of an option from those of its groups; an empty part adds nothing."""
    return ".".join(str(part) for part in parts if part != "")


def from_dict(kind: type[T], value: Any, trusted: Collection[str] = (), path: str = "") -> T:
    """Options from nested plain values, as :func:`to_dict` gives them; others have their default.

    Args:
        kind: A dataclass of options, a choice of them, or an annotation of one; or a plain
            dataclass, for which names that it does not have are ignored.
        value: The values, which stand at ``path``.
        trusted: User-defined classes that the values may name, as ``module:Class``.
        path: What messages begin with.
    """
    try:
        made: T = ADAPTER_OF(kind).validate_python(value, context={"trusted": trusted})
        return made
    except ValidationError as error:
        raise explain(error).below(path) from None


KINDS = {
    **{"int": "a whole number", "float": "a number", "finite": "a finite number"},
    **{"bool": "true or false", "string": "a text", "tuple": "a list", "list": "a list"},
    "invalid-json-value": "a number, a text or a list",
    **{"dict": "a mapping", "mapping": "a mapping", "dataclass": "a group of options"},
}
"""What is accepted, by the beginning of the type of pydantic's error."""

RANGE = re.compile(r"\d+-\d+")
"""What may be meant for a range, where numbers are expected; pydantic reads 0-2 as -2."""

LIMITS = {"ge": "at least", "le": "at most", "gt": "above", "lt": "below"}


def explain(error: ValidationError) -> OptionError:
    """The first mistake that pydantic found, as one line with its path."""
    first = error.errors(include_url=False)[0]
    # an alternative of a union stands in pydantic's path as the name of its type
    path = join_path(*(part for part in first["loc"] if part not in ("str", "int", "list", "dict")))
    context, given = first.get("ctx", {}), first["input"]
    reason, beginning = context.get("error"), first["type"].partition("_")[0]
    if isinstance(reason, OptionError):
        return reason.below(path)
    if reason is not None:
        return OptionError(path, f": {reason}")
    if beginning == "literal":
        words = context["expected"].replace(" or ", ", ").replace("'", "")
        return OptionError(path, f" must be one of {words}; got {shown(given)}")
    if beginning == "missing":
        return OptionError(path, " is missing")
    if beginning in KINDS:
        return OptionError(path, f" must be {KINDS[beginning]}, got {shown(given)}")
    for limit in LIMITS.keys() & context.keys():
        bound, number = map(_in_digits, (context[limit], given))
        return OptionError(path, f" must be {LIMITS[limit]} {bound}, got {number}")
    return OptionError(path, f": {first['msg']}, got {shown(given)}")


def _in_digits(value: Any) -> Any:
    """A number as a message shows it: a large whole one with commas."""
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else value


def _read_values(cls: Any, value: Any) -> Any:
    """The values of a group by name, as Python or YAML would have them, before validation."""
    if isinstance(value, cls):
        return value
    values = dict(value.kwargs or {}) if isinstance(value, ArgsKwargs) else _as_mapping(value)
    options = options_of(cls)
    if CLASS in values:  # a value alone is meant for the first option, if that has to be given
        name, option = next(iter(options.items()))
        if option.default is not MISSING:
            raise OptionError("", " is a group of options", list(options)[:3])
        values[name] = values.pop(CLASS)
    for name, given in values.items():
        if name not in options:
            raise explain_unknown([cls], str(name))
        with in_group(name):
            values[name] = _read_value(options[name], given)
    return values


def _read_value(option: Option, value: Any) -> Any:
    kind = inner_kind(option.kind)
    if isinstance(value, Mapping) and choices_of(kind) is not None and CLASS not in value:
        return merge(to_dict(option.default), value)  # the class of the default
    if isinstance(value, str) and value in NOTHING and NoneType in get_args(option.kind):
        return None
    if isinstance(value, bool) and kind in (int, float):
        raise OptionError("", f" must be {KINDS[kind.__name__]}, got {value}")
    if isinstance(value, Text):
        return read_text(kind, value)
    return str(value) if isinstance(value, Path) else value


def read_text(kind: Any, text: Text) -> Any:
    """The value of a text of the command line, as Python or YAML would have it."""
    if isinstance(text, Flag) and kind is not bool:
        raise OptionError("", " needs a value")
    if classes_of(kind):
        return text  # which of its options it is meant for says how it is read
    origin = get_origin(kind)
    if origin in (dict, Mapping):
        return parse_yaml(text)
    is_list = origin in (tuple, list, Sequence)
    parts = text.strip().removeprefix("[").removesuffix("]").split(",") if is_list else [text]
    items = [part.strip() for part in parts if part.strip()]
    if int in (kind, *get_args(kind)) and any(map(RANGE.fullmatch, items)):
        numbers = "whole numbers with commas between" if is_list else KINDS["int"]
        raise OptionError("", f" must be {numbers}, got {shown(str(text))}")
    return items if is_list else str(text)


def _as_mapping(value: Any) -> dict[str, Any]:
    """A name that stands for a class with its defaults, as a group."""
    return {} if value is None else dict(value) if isinstance(value, Mapping) else {CLASS: value}


def explain_unknown(
    classes: Sequence[Any], name: str, more: Iterable[str] = ()
) -> UnusedOptionError:
    """The error of an unknown option: similar ones of these classes, or the class that has it.

    Args:
        classes: The classes that have the options.
        name: The name that was given.
        more: Further names that there are.
    """
    options = {path: path.rpartition(".")[2] for path in options_below(classes)}
    options |= {path: path for path in more}
    if similar := _similar_options(name, options):
        what = " is not an option" + "; steps are counted, not epochs" * ("epoch" in name)
        return UnusedOptionError(name, what, similar[:3])
    for kind in classes:
        table = choices_of(kind) or {}
        if others := [choice for choice, other in table.items() if name in options_of(other)]:
            what = f" is not an option of {name_of(kind, table)}, but of {', '.join(others)}"
            return UnusedOptionError(name, what)
    names = ", ".join(path for path in options if path == options[path]) or "none"
    return UnusedOptionError(name, f" is not an option: choose from {names}")


def _similar_options(name: str, options: Mapping[str, str]) -> list[str]:
    """The options that a wrong name may stand for, by the surest clue that it gives.

    Args:
        name: The name.
        options: The last part of each option's path, which is all of it outside of groups.
    """
    # another program's word; here too an option may stand outside of its group, as in score.py
    alias = OPTION_ALIASES.get(name, "")
    paths = dict.fromkeys((alias, alias.rpartition(".")[2]))
    if aliased := [path for path in paths if path in options]:
        return aliased
    # a path with an underscore for the dot, as train_steps, or its group at least
    group, _, rest = name.partition("_")
    if rest and f"{group}.{rest}" in options:
        return [f"{group}.{rest}"]
    if in_named_group := [path for path in options if rest and path.startswith(f"{group}.")]:
        return in_named_group
    # a misspelling, or the last part of a path
    close = get_close_matches(name, options.values(), 1, 0.75)
    similar = [path for path in options if options[path] in close]
    return [path for path in similar if path == options[path]] or similar


def to_dict(value: Any) -> Any:
    """Options as YAML and JSON have them."""
    if hasattr(value, "to_options"):
        return to_dict(value.to_options())
    if isinstance(value, Mapping):
        return {str(name): to_dict(item) for name, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        table = choices_of(type(value))
        group = {} if table is None else {CLASS: name_of(type(value), table)}
        return group | {name: to_dict(getattr(value, name)) for name in options_of(type(value))}
    return [*map(to_dict, value)] if isinstance(value, list | tuple) else value


def merge(below: Any, above: Any) -> Any:
    """Nested values with others laid over them; another class takes no option of the first."""
    if not isinstance(below, Mapping) and not isinstance(above, Mapping):
        return above
    if not isinstance(above, Mapping) and above in NOTHING:
        return None
    lower, upper = _as_mapping(below), _as_mapping(above)
    if CLASS in upper and _as_word(upper[CLASS]) != _as_word(lower.get(CLASS, upper[CLASS])):
        return upper
    both = {name: merge(lower[name], upper[name]) for name in upper if name in lower}
    return lower | upper | both


def flatten(value: Any, path: str = "") -> dict[str, Any]:
    """Nested values side by side, under names such as ``data.folder``."""
    if not isinstance(value, Mapping):
        return {path: value}
    flat: dict[str, Any] = {}
    for name, inner in value.items():
        flat |= flatten(inner, join_path(path, name))
    return flat


class Coerced(Generic[Read, Given]):
    """A field that is given as one type, such as a name, and read as another, its class.

    ``prior: Coerced[Prior, Literal["chain"]]`` is ``prior: Prior`` to pydantic, which reads the
    name. A type checker and an editor take the name for an argument too.
    """

    if TYPE_CHECKING:

        def __get__(self, instance: object, owner: type) -> Read: ...
        def __set__(self, instance: object, value: Read | Given) -> None: ...

    else:

        def __class_getitem__(cls, kinds: tuple[Any, Any]) -> Any:
            """What the field is read as."""
            return kinds[0]


class Choice:
    """Base of the classes that an option chooses among, by the name in a table.

    Attributes:
        extensible: Whether a user-defined class may be named too, as ``module:Class``.
        base: What such a class extends, where that is not this one.
    """

    extensible: ClassVar[bool] = False
    base: ClassVar[type | None] = None

    @classmethod
    def choices(cls) -> Mapping[str, type]:
        """The classes by name."""
        raise TypeError(f"{cls.__name__} names no classes")

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """An abstract class stands for its choices, a concrete one for its own options."""
        if not (inspect.isabstract(source) or cls.base):
            return handler(source)
        return core_schema.with_info_plain_validator_function(
            lambda value, info: source.read(value, (info.context or {}).get("trusted", ()))
        )

    @classmethod
    def read(cls, value: Any, trusted: Collection[str] = ()) -> Any:
        """An object of one of the classes, from a name or from a name with options."""
        if isinstance(value, cls) and (cls.extensible or type(value) in cls.choices().values()):
            return value
        options = _as_mapping(value)
        return cls.of_class(cls.find_class(options.pop(CLASS, None), trusted), options, trusted)

    @classmethod
    def of_class(cls, kind: type, options: dict[str, Any], trusted: Collection[str]) -> Any:
        """An object of a class that was chosen."""
        return from_dict(kind, options, trusted)

    @classmethod
    def find_class(cls, name: Any, trusted: Collection[str]) -> type:
        """A class by its name; a user-defined one is imported if it is trusted."""
        kind = cls._find_choice(name)
        if kind is None and load_options():  # an installed package may add it
            kind = cls._find_choice(name)
        if kind is not None:
            return kind
        if cls.extensible and CLASS_PATH.fullmatch(str(name)):
            return import_trusted(cls.base or cls, str(name), trusted)
        if _as_word(name) in map(_as_word, RECIPES):
            raise OptionError("", f" {shown(name)} is a recipe: use recipe {name}")
        own = ", or module:Class for your own" * cls.extensible
        raise OptionError("", f" must be one of {', '.join(cls.choices())}{own}; got {shown(name)}")

    @classmethod
    def _find_choice(cls, name: Any) -> type | None:
        for choice, kind in cls.choices().items():
            if _as_word(name) in map(_as_word, (choice, kind.__name__)):
                return kind
        return None


def _as_word(name: Any) -> str:
    """The name of a class as it is compared: without case, hyphens and underscores."""
    return re.sub("[-_]", "", str(name)).lower()


def name_of_class(value: Any) -> str:
    """The name of an object's class among its choices; for a user-defined one, its path."""
    return name_of(type(value), choices_of(type(value)) or {})


def is_plain(value: Any) -> bool:
    """Whether a file can hold a value: a number, a text, nothing, or a list of them."""
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def name_of(own: type, table: Mapping[str, type]) -> str:
    """The name of a class in a table; for a user-defined one, its path."""
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


def import_trusted(base: type, path: str, trusted: Collection[str]) -> type:
    """Imports a user-defined class, ``module:Class``, that can stand for its base class."""
    if path not in trusted:
        raise OptionError(
            "",
            f" {shown(path)} is none of this library's, and a file may import nothing; if the "
            f"class is yours, say so: --trust {path}, or trusted={path!r} in Python",
        )
    try:
        own_class = pkgutil.resolve_name(path)
    except Exception as reason:
        root = re.split(r"[.:]", path)[0]
        unseen = isinstance(reason, ModuleNotFoundError) and reason.name == root
        where = f"; start in the folder of {root}.py, or name it in PYTHONPATH" if unseen else ""
        message = " ".join(str(reason).split())
        raise OptionError("", f" {shown(path)} cannot be imported: {message}{where}") from reason
    return check_class(own_class, base, path)


def check_class(own_class: Any, base: type, path: str) -> type:
    """A user-defined class, if it can stand for its base class."""
    if not (isinstance(own_class, type) and issubclass(own_class, base)):
        raise OptionError(
            "", f" {shown(path)} must be a subclass of {base.__module__}.{base.__name__}"
        )
    if missing := sorted(getattr(own_class, "__abstractmethods__", ())):
        raise OptionError("", f" {shown(path)} is abstract: it must define {', '.join(missing)}")
    return own_class


@cache
def arguments_class(kind: Any) -> Any:
    """A dataclass of the arguments of a constructor; one without a type has that of its default."""
    try:
        hints = get_type_hints(kind.__init__)
    except (NameError, TypeError):
        hints = {}
    members: dict[str, Any] = {"__annotations__": {}}
    arguments = list(inspect.signature(kind).parameters.items())
    # the first are no options, such as the model of a guide
    for name, argument in arguments[getattr(kind, "num_inputs", 0) :]:
        if argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD):
            continue
        required = argument.default is argument.empty
        if required and argument.annotation is argument.empty:
            raise OptionError(name, f" needs a type or a default, as {name}: float = 1.0")
        like = type(argument.default)
        hint = hints.get(name, like if like in (bool, int, float, str) else JsonValue)
        members["__annotations__"][name] = JsonValue if hint in (Any, object) else hint
        if not required:
            members[name] = field(default_factory=partial(copy, argument.default))
    try:
        return options_class(kw_only=True)(type(kind.__name__, (), members))
    except PydanticUserError as error:
        raise OptionError("", f" {import_path(kind)!r}: {one_line_message(error)}") from error


@dataclass(frozen=True)
class ClassSpec(Choice):
    """A class by its name, and all arguments of its constructor, the model aside.

    Attributes:
        name: One of the library's, or ``module:Class``.
        options: The arguments; those that were not given have their default, so that one that
            changes later changes no old run.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    extensible: ClassVar[bool] = True

    def __post_init__(self) -> None:
        kind = self.find()
        arguments = from_dict(arguments_class(kind), to_dict(self.options))
        options = {name: to_dict(getattr(arguments, name)) for name in options_of(kind)}
        object.__setattr__(self, "name", name_of(kind, self.choices()))
        object.__setattr__(self, "options", options)

    @classmethod
    def of_class(cls, kind: type, options: dict[str, Any], trusted: Collection[str]) -> Any:
        return cls(name_of(kind, cls.choices()), options)

    def to_options(self) -> dict[str, Any]:
        """The name and all options."""
        return {CLASS: self.name, **self.options}

    @classmethod
    def of(cls, component: Any) -> Any:
        """The name and the options of an object."""
        return cls.of_class(type(component), component.config, ())

    def find(self) -> Any:
        """The class, which whoever makes this object has named."""
        return self.find_class(self.name, [self.name])
