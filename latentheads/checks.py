"""Figures and words of options: within their limits, or refused in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["check_least", "check_seed", "check_words", "distinct", "whole_numbers"]

TOP = 2**63


def check_least(values: Mapping[str, Any], **least: float) -> None:
    """Refuses what is less than it may be, infinite, or no number.

    Args:
        values: Options by name; None is none to refuse.
        **least: The least that each may be.

    Raises:
        ValueError: The first that is out of range.
    """
    for name, bound in least.items():
        value = values[name]
        if value is not None and not bound <= value < TOP:
            most = " and less than 2^63" if value >= TOP else ""
            raise ValueError(f"{name} must be at least {bound}{most}, got {value}")


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
