"""Checks of arguments: numbers in range, names among their choices; errors of one line."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence, Sized
from numbers import Integral, Real
from types import UnionType
from typing import Any

from latentheads.errors import shown

MAX_INTEGER = 2**63

MAX_WIDTH = 2**16
"""Most units of a layer: more do not fit into memory."""


def check_number(name: str, value: Any, whole: bool = False) -> None:
    """Checks that a value is a number, or a whole number."""
    if isinstance(value, bool) or not isinstance(value, Integral if whole else Real):
        raise ValueError(f"{name} must be a {'whole ' * whole}number, got {shown(value)}")


def check_least(values: Mapping[str, Any], **least: float) -> None:
    """Checks that values are None, or finite and at least a minimum; an int is of whole numbers."""
    for name, minimum in least.items():
        if (value := values[name]) is None:
            continue
        check_number(name, value)
        if not minimum <= value < MAX_INTEGER:
            upper = " and less than 2^63" if value >= MAX_INTEGER else ""
            raise ValueError(f"{name} must be at least {minimum:g}{upper}, got {value}")
        check_number(name, value, whole=isinstance(minimum, int))


def check_within(name: str, value: Any, low: float, high: float) -> None:
    """Checks that a number lies between two others, or is one of them."""
    if not low <= value <= high:
        raise ValueError(f"{name} must lie in {low:g} ... {high:g}, got {value}")


def check_fraction(name: str, value: Any) -> None:
    """Checks that a number is a probability that is neither 0 nor 1."""
    if not 0 < value < 1:
        raise ValueError(f"{name} must be above 0 and below 1, got {value}")


def check_positive(name: str, value: Any) -> None:
    """Checks that a number is positive and finite."""
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be positive and finite, got {value}")


def check_seed(seed: int) -> None:
    """Checks that a value can seed a generator."""
    check_number("seed", seed, whole=True)
    check_least({"seed": seed}, seed=0)


def check_choice(name: str, value: Any, choices: Collection[str], more: str = "") -> None:
    """Checks that a value is one of some choices; ``more`` names what else is accepted."""
    if not isinstance(value, str) or value not in choices:
        accepted = f"{', '.join(choices)}{more}"
        raise ValueError(f"{name} must be one of {accepted}; got {shown(value)}")


def split_items(text: str) -> list[str]:
    """Splits a comma-separated list; whitespace around items is removed."""
    return [item.strip() for item in text.split(",")]


def check_instance(name: str, value: Any, kinds: type | UnionType, accepted: str) -> None:
    """Checks that a value is of one of some types; ``accepted`` describes these values."""
    if not isinstance(value, kinds):
        raise ValueError(f"{name} must be {accepted}, got {shown(value)}")


def check_unicode(name: str, text: str) -> None:
    """Raises an error for a text with a lone surrogate, which Python makes of other bytes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} must be UTF-8, got {shown(text)}") from error


def check_list(name: str, values: Any) -> None:
    """Checks that values are several; one text would be read letter by letter."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ValueError(f"{name} must be a list, got {shown(values)}")


def check_not_empty(name: str, values: Sized) -> None:
    """Checks that there is a value."""
    if not len(values):
        raise ValueError(f"{name} must be at least one, got none")


def check_as_many(name: str, values: Sized, of: str, others: Sized) -> None:
    """Checks that there is a value for each of some others."""
    if len(values) != len(others):
        raise ValueError(f"{name} must be as many as {of}, {len(others):,}, got {len(values):,}")


def check_items(name: str, items: Sequence[Any]) -> None:
    """Checks that a list has items, and that they are distinct."""
    if not items or len(set(items)) < len(items):
        given = ",".join(map(str, items)) or "none"
        raise ValueError(f"{name} must be at least one, each once, got {given}")
