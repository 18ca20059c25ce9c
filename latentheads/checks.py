"""Checks of arguments: numbers in range, names among their choices; errors of one line."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from numbers import Integral, Real
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


def check_seed(seed: int) -> None:
    """Checks that a value can seed a generator."""
    check_number("seed", seed, whole=True)
    check_least({"seed": seed}, seed=0)


def check_choice(name: str, value: Any, choices: Collection[str], more: str = "") -> None:
    """Checks that a value is one of some choices; ``more`` says what else is accepted."""
    if not isinstance(value, str) or value not in choices:
        accepted = f"{', '.join(choices)}{more}"
        raise ValueError(f"{name} must be one of {accepted}; got {shown(value)}")


def split_items(text: str) -> list[str]:
    """Splits a comma-separated list; whitespace around items is removed."""
    return [item.strip() for item in text.split(",")]


def check_items(name: str, items: Sequence[Any]) -> None:
    """Checks that a list has items, and that they are distinct."""
    if not items or len(set(items)) < len(items):
        given = ",".join(map(str, items)) or "none"
        raise ValueError(f"{name} must be at least one, each once, got {given}")
