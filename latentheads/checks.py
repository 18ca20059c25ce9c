"""Checks of arguments: numbers in range, names among their choices; errors of one line."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from latentheads.errors import shown

MAX_INTEGER = 2**63

MAX_SAMPLES = 100_000
"""Most samples of one quantity: more would take days, or all memory."""


MAX_WIDTH = 2**16
"""Most units of a layer: more do not fit into memory."""

MAX_PARTICLES = 10_000
"""Most samples of a training objective: each keeps its graph until the backward pass."""


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


def check_most(values: Mapping[str, Any], **most: float) -> None:
    """Checks that values are None, or at most a maximum."""
    for name, maximum in most.items():
        if (value := values[name]) is not None and value > maximum:
            raise ValueError(f"{name} must be at most {maximum:,}, got {value:,}")


def check_samples(num_samples: int) -> None:
    """Checks a number of samples."""
    check_least({"num_samples": num_samples}, num_samples=1)
    check_most({"num_samples": num_samples}, num_samples=MAX_SAMPLES)


def check_seed(seed: int) -> None:
    """Checks that a value can seed a generator."""
    check_number("seed", seed, whole=True)
    check_least({"seed": seed}, seed=0)


def check_choice(name: str, value: Any, choices: Collection[str]) -> None:
    """Checks that the value of an option is one of its choices."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {shown(value)}")


def check_known(
    kind: str, name: Any, choices: Collection[str], whose: str = "", more: str = ""
) -> None:
    """Checks that something of a kind has this name; ``more`` says what else is accepted."""
    if name not in choices:
        of_whom = f" of {whose}" if whose else ""
        choices_and_more = f"{', '.join(choices)}{more}"
        raise ValueError(f"unknown {kind} {shown(name)}{of_whom}: choose from {choices_and_more}")


def split_items(text: str) -> list[str]:
    """Splits a comma-separated list; whitespace around items is removed."""
    return [item.strip() for item in text.split(",")]


def parse_integers(name: str, text: str) -> list[int]:
    """Parses comma-separated whole numbers."""
    try:
        return [*map(int, split_items(text))]
    except ValueError:
        message = f"{name} must be whole numbers with commas between, got {shown(text)}"
        raise ValueError(message) from None


def check_distinct(name: str, items: Sequence[Any]) -> None:
    """Checks that the items of a list are distinct."""
    if len(set(items)) < len(items):
        raise ValueError(f"{name} must differ from each other, got {','.join(map(str, items))}")


def check_items(name: str, items: Sequence[Any]) -> None:
    """Checks that a list has items, and that they are distinct."""
    if not items:
        raise ValueError(f"{name} must be at least one, got none")
    check_distinct(name, items)
