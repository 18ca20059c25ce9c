"""Classes that options name, with their own options: those of the library, or ``module:Class``."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar, get_type_hints

from torch import nn

from latentheads.arguments import WithOptions
from latentheads.checks import check_known
from latentheads.options import CLASS
from latentheads.own_classes import import_path, import_trusted, split_path
from latentheads.recipes import RECIPES
from latentheads.values import KINDS, CommandLineText, convert, convert_fields, plain, shown

S = TypeVar("S", bound="ClassSpec")


@dataclass(frozen=True, eq=False)
class ClassSpec:
    """A class that is named, and its options.

    Attributes:
        name: One of the library's, or ``module:Class``.
        options: Those that were given; the others are at their default.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    kind: ClassVar[str]
    base: ClassVar[type]
    extensible: ClassVar[bool] = True

    def __post_init__(self) -> None:
        convert_fields(self)

    def __eq__(self, other: object) -> bool:
        """Whether both stand for one class with one value of every option, given or by default."""
        if not isinstance(other, ClassSpec) or (type(self), self.name) != (type(other), other.name):
            return False
        if plain(self.options) == plain(other.options):
            return True
        return bool(plain(self.to_options()) == plain(other.to_options()))

    def __hash__(self) -> int:
        """As the name: options at their default may be given or not."""
        return hash((type(self), self.name))

    @classmethod
    def choices(cls) -> Mapping[str, type]:
        """The library's classes by name."""
        raise TypeError(f"{cls.__name__} names no classes")

    @classmethod
    def from_options(
        cls: type[S], name: str, options: Mapping[str, Any], trusted: Collection[str] = ()
    ) -> S:
        """Reads the name and the options.

        Args:
            name: One of the library's, or ``module:Class``.
            options: Plain values.
            trusted: Classes of the reader's own that may be named; nothing else is imported.

        Raises:
            ValueError: There is no such class, or it is not trusted or has no such option.
        """
        component_class = cls._find(name, trusted)
        return cls(
            name_of(component_class, cls.choices()),
            _fit_options(cls.kind, component_class, name, options),
        )

    def to_options(self) -> dict[str, Any]:
        """The name and all options, so that a default that changes later changes no old run."""
        defaults = {parameter.name: parameter.default for parameter in own_options(self.find())}
        default_values = {n: v for n, v in defaults.items() if v is not inspect.Parameter.empty}
        return {CLASS: self.name, **default_values, **self.options}

    @classmethod
    def of(cls: type[S], component: WithOptions) -> S:
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
            if not _is_plain(value):
                raise ValueError(
                    f"{cls.kind} option {name!r} is of type {type(value).__name__}: a run folder "
                    "holds numbers, texts and lists of them"
                )
        if "." in (path := type(component).__qualname__):
            raise ValueError(
                f"{cls.kind} {path} is made inside another class or a function, where no run "
                "folder finds it: define it at the top of its module"
            )
        return cls(name_of(type(component), cls.choices()), component.options)

    def find(self) -> Any:
        """The class; that of the reader's own was imported when its name was read.

        Raises:
            ValueError: There is none.
        """
        return self._find(self.name, [self.name])

    def check(self) -> None:
        """Validates the name, and that the class has the options."""
        _fit_options(self.kind, self.find(), self.name, self.options)

    @classmethod
    def _find(cls, name: str, trusted: Collection[str]) -> type:
        table = cls.choices()
        if name in table:
            return table[name]
        if ":" not in name and "." not in name:
            if name in RECIPES:
                raise ValueError(
                    f"{shown(name)} is not a {cls.kind} but a recipe: use recipe {name}"
                )
            check_known(cls.kind, name, table, more=", or module:Class for your own")
        path = split_path(cls.kind, name)
        for component_class in table.values():
            if path == import_path(component_class):
                return component_class
        own_class = import_trusted(cls.kind, cls.base, name, trusted)
        _check_arguments(cls.kind, own_class)
        return own_class


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return plain(value) is None or isinstance(plain(value), bool | int | float | str)


def _check_arguments(kind: str, component_class: type) -> None:
    """Checks the arguments of a guide or a prior of the reader's own."""
    path, own = import_path(component_class), own_options(component_class)
    if kind == "guide" and own and own[0] == next(iter(_parameters(component_class))):
        raise ValueError(
            f"guide {shown(path)}: its first argument must be called model, got {own[0].name}"
        )
    for option in own:
        if option.annotation is option.empty and option.default is option.empty:
            raise ValueError(
                f"{kind} {shown(path)}: its option {shown(option.name)} needs a type or a "
                "default, as "
                f"{option.name}: float = 1.0"
            )


def own_options(component_class: type) -> list[inspect.Parameter]:
    """The options that a guide or a prior has beside the model."""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    named = (
        parameter for parameter in _parameters(component_class) if parameter.kind not in variable
    )
    return [parameter for parameter in named if parameter.name != "model"]


def _parameters(component_class: type) -> Iterable[inspect.Parameter]:
    return inspect.signature(component_class).parameters.values()


def _hints_of(component_class: type) -> dict[str, Any]:
    """The annotations of a class's options; none where they cannot be read."""
    try:
        return get_type_hints(component_class.__init__)  # type: ignore[misc]
    except (NameError, TypeError):
        return {}


def _fit_options(
    kind: str, component_class: type, name: str, raw_options: Mapping[str, Any]
) -> dict[str, Any]:
    """The options of a class as its annotations want them."""
    options = {option.name: option for option in own_options(component_class)}
    for option in raw_options:
        if option not in options:
            has = ", ".join(options) or "none"
            raise ValueError(f"{kind} {shown(name)} has no option {shown(option)}; it has {has}")
    for parameter in options.values():
        if parameter.default is parameter.empty and parameter.name not in raw_options:
            raise ValueError(f"{kind} {shown(name)} needs {kind}.{parameter.name}")
    hints = _hints_of(component_class)
    values = {}
    for option, value in raw_options.items():
        if not _is_plain(value):
            raise ValueError(
                f"{kind}.{option} must be a number, a text or a list of them, got {shown(value)}"
            )
        like = type(options[option].default)
        untyped = option not in hints and like in (bool, int, float, str)
        hint = hints.get(option, like if untyped else Any)
        values[option] = convert(f"{kind}.{option}", hint, value)
        if isinstance(values[option], CommandLineText):
            values[option] = str(values[option])
        elif untyped and not _is_like(like, values[option]):
            raise ValueError(f"{kind}.{option} must be {KINDS[like]}, got {value}")
    return values


def _is_like(like: type, value: Any) -> bool:
    return type(value) is like or (like, type(value)) == (float, int)


def name_of(component_class: type, table: Mapping[str, type]) -> str:
    """A class's name in a table, or its import path."""
    names = (name for name, choice in table.items() if choice is component_class)
    return next(names, import_path(component_class))
