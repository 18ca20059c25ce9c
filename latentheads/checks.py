"""Validation of options: numbers in range, names among their choices; errors of one line."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from latentheads.errors import shown

MAX_INTEGER = 2**63

MAX_SAMPLES = 100_000
"""Most samples of one quantity: more would take days, or all memory."""

MAX_PARTICLES = 10_000
"""Most samples of a training objective: each keeps its graph until the backward pass."""

MAX_WIDTH = 2**16
"""Most units of a layer: more do not fit into memory."""


def check_number(name: str, value: Any, whole: bool = False) -> None:
    """Checks that a value is a number, or a whole number.

    Args:
        name: The option.
        value: Its value.
        whole: Whether it must be a whole number.
    """
    if isinstance(value, bool) or not isinstance(value, Integral if whole else Real):
        kind = "a whole number" if whole else "a number"
        raise ValueError(f"{name} must be {kind}, got {shown(value)}")


def check_least(values: Mapping[str, Any], **least: float) -> None:
    """Checks that values are finite numbers and at least their minimum.

    Args:
        values: Options by name; None is accepted.
        **least: The minimum of each: an int if the value must be a whole number, otherwise a float.
    """
    for name, minimum in least.items():
        value = values[name]
        if value is None:
            continue
        check_number(name, value)
        if not minimum <= value < MAX_INTEGER:
            upper = " and less than 2^63" if value >= MAX_INTEGER else ""
            raise ValueError(f"{name} must be at least {minimum:g}{upper}, got {value}")
        check_number(name, value, whole=isinstance(minimum, int))


def check_choice(name: str, value: Any, choices: Collection[str]) -> None:
    """Checks that the value of an option is one of its choices."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}; got {shown(value)}")


def check_choices(values: Mapping[str, Any], **choices: Collection[str]) -> None:
    """Checks that values are among their choices; see :func:`check_choice`."""
    for name, accepted in choices.items():
        check_choice(name, values[name], accepted)


def check_most(values: Mapping[str, Any], **most: float) -> None:
    """Checks that values are at most their maximum.

    Args:
        values: Options by name; None is accepted.
        **most: The maximum of each.
    """
    for name, maximum in most.items():
        if (value := values[name]) is not None and value > maximum:
            raise ValueError(f"{name} must be at most {maximum:,}, got {value:,}")


def check_samples(samples: int) -> None:
    """Checks a number of samples."""
    check_least({"samples": samples}, samples=1)
    check_most({"samples": samples}, samples=MAX_SAMPLES)


def check_known(
    kind: str, name: Any, choices: Collection[str], whose: str = "", more: str = ""
) -> None:
    """Checks that something of a kind has this name.

    Args:
        kind: What is named, such as a prior.
        name: The name.
        choices: All names.
        whose: Where the name was given, for the message.
        more: What else is accepted, appended to the message.
    """
    if name not in choices:
        of_whom = f" of {whose}" if whose else ""
        raise ValueError(
            f"unknown {kind} {shown(name)}{of_whom}: choose from {', '.join(choices)}{more}"
        )


def check_seed(seed: int) -> None:
    """Checks that a value can seed a generator."""
    check_number("seed", seed, whole=True)
    if not 0 <= seed < MAX_INTEGER:
        raise ValueError(f"seed must lie between 0 and 2^63, got {seed}")


def split_items(text: str) -> list[str]:
    """Splits a comma-separated list; whitespace around items is removed."""
    return [item.strip() for item in text.split(",")]


def parse_integers(name: str, text: str) -> list[int]:
    """Parses comma-separated whole numbers."""
    try:
        return [int(word) for word in split_items(text)]
    except ValueError:
        raise ValueError(
            f"{name} must be whole numbers with commas between, got {shown(text)}"
        ) from None


def check_distinct(name: str, items: Sequence[Any]) -> None:
    """Checks that the items of a list are distinct."""
    if len(set(items)) < len(items):
        raise ValueError(f"{name} must differ from each other, got {','.join(map(str, items))}")


def check_items(name: str, items: Sequence[Any]) -> None:
    """Checks that a list has items, and that they are distinct."""
    if not items:
        raise ValueError(f"{name} must be at least one, got none")
    check_distinct(name, items)
