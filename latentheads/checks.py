"""Checks of options: numbers within their limits, words among those known; else one line."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from latentheads.values import shown

__all__ = [
    "check_known",
    "check_least",
    "check_most",
    "check_number",
    "check_seed",
    "check_word",
    "check_words",
    "distinct",
    "split_items",
    "whole_numbers",
]

TOP = 2**63


def check_number(name: str, value: Any, whole: bool = False) -> None:
    """Refuses a value that is no number, or no whole number where one is needed.

    Args:
        name: The option.
        value: Its value.
        whole: Whether it must be a whole number.

    Raises:
        ValueError: It is no such number.
    """
    if isinstance(value, bool) or not isinstance(value, Integral if whole else Real):
        kind = "a whole number" if whole else "a number"
        raise ValueError(f"{name} must be {kind}, got {value!r}")


def check_least(values: Mapping[str, Any], **least: float) -> None:
    """Refuses values that are below their least, infinite, or no numbers.

    Args:
        values: Options by name; one that is None passes.
        **least: The least value of each: as an int where it must be whole, as a float where it may
            be a fraction.

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


def check_word(name: str, value: Any, known: Collection[str]) -> None:
    """Refuses a word that an option does not know.

    Args:
        name: The option.
        value: The word.
        known: The words that the option knows.

    Raises:
        ValueError: It does not know the word.
    """
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}; got {shown(value)}")


def check_words(values: Mapping[str, Any], **known: Collection[str]) -> None:
    """Refuses the first word that its option does not know; see :func:`check_word`.

    Args:
        values: Options by name.
        **known: The words that each option knows.

    Raises:
        ValueError: The first that does not know its word.
    """
    for name, words in known.items():
        check_word(name, values[name], words)


def check_most(values: Mapping[str, Any], **most: float) -> None:
    """Refuses values above their most.

    Args:
        values: Options by name.
        **most: The most of each.

    Raises:
        ValueError: The first that is out of range.
    """
    for name, bound in most.items():
        if values[name] > bound:
            raise ValueError(f"{name} must be at most {bound:,}, got {values[name]:,}")


def check_known(
    kind: str, name: Any, known: Collection[str], whose: str = "", more: str = ""
) -> None:
    """Refuses a name that nothing of its kind has.

    Args:
        kind: What is named, such as a prior.
        name: The name.
        known: The names that there are.
        whose: Where the name stands, if the kind does not tell.
        more: What is accepted beside them, as the message ends.

    Raises:
        ValueError: There is none of that name.
    """
    if name not in known:
        where = f" of {whose}" if whose else ""
        raise ValueError(f"unknown {kind} {name!r}{where}: choose from {', '.join(known)}{more}")


def check_seed(seed: int) -> None:
    """Refuses a value that cannot seed a generator."""
    check_number("seed", seed, whole=True)
    if not 0 <= seed < TOP:
        raise ValueError(f"seed must lie between 0 and 2^63, got {seed}")


def split_items(text: str) -> list[str]:
    """The items of a list with commas between; blanks around them are none of theirs."""
    return [item.strip() for item in text.split(",")]


def whole_numbers(name: str, text: str) -> list[int]:
    """Reads whole numbers with commas between."""
    try:
        return [int(word) for word in split_items(text)]
    except ValueError:
        raise ValueError(
            f"{name} must be whole numbers with commas between, got {text!r}"
        ) from None


def distinct(name: str, given: Sequence[Any]) -> None:
    """Refuses a list in which something stands twice."""
    if len(set(given)) < len(given):
        raise ValueError(f"{name} must differ from each other, got {','.join(map(str, given))}")
