"""Figures and words of options: within their limits, or refused in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

__all__ = [
    "check_least",
    "check_number",
    "check_seed",
    "check_words",
    "distinct",
    "whole_numbers",
]

TOP = 2**63


def check_number(name: str, value: Any, whole: bool = False) -> None:
    """Refuses what is no number, or a fraction of what is counted.

    Args:
        name: Of the option.
        value: What it is said to be.
        whole: Whether something is counted.

    Raises:
        ValueError: It is none.
    """
    if not isinstance(value, Integral if whole else Real):
        kind = "a whole number" if whole else "a number"
        raise ValueError(f"{name} must be {kind}, got {value!r}")


def check_least(values: Mapping[str, Any], **least: float) -> None:
    """Refuses what is less than it may be, infinite, or no number.

    Args:
        values: Options by name; None is none to refuse.
        **least: The least that each may be: a whole number of what is counted, 0.0 of what may be
            a fraction.

    Raises:
        ValueError: The first that is out of range.
    """
    for name, bound in least.items():
        value = values[name]
        if value is None:
            continue
        check_number(name, value)
        if not bound <= value < TOP:
            most = " and less than 2^63" if value >= TOP else ""
            raise ValueError(f"{name} must be at least {bound:g}{most}, got {value}")
        check_number(name, value, whole=isinstance(bound, int))


def check_words(values: Mapping[str, Any], **known: Sequence[str]) -> None:
    """Refuses a word that is none of those that may be said.

    Args:
        values: Options by name.
        **known: What may be said of each.

    Raises:
        ValueError: The first that is none of them.
    """
    for name, words in known.items():
        if values[name] not in words:
            raise ValueError(f"{name} must be one of {', '.join(words)}, got {values[name]!r}")


def check_seed(seed: int) -> None:
    """Refuses what seeds no generator."""
    check_number("seed", seed, whole=True)
    if not 0 <= seed < TOP:
        raise ValueError(f"seed must lie between 0 and 2^63, got {seed}")


def whole_numbers(name: str, text: str) -> list[int]:
    """The numbers that a word names, commas between."""
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise ValueError(
            f"{name} must be whole numbers with commas between, got {text!r}"
        ) from None


def distinct(name: str, given: Sequence[Any]) -> None:
    """Refuses what is named twice."""
    if len(set(given)) < len(given):
        raise ValueError(f"{name} must differ from each other, got {','.join(map(str, given))}")
