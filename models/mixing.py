"""Parses the mixer of each layer of a stack, as ``ngram*3,attention*3``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from latentheads.checks import check_choice, split_items
from latentheads.errors import shown

MIXERS = ("attention", "local", "ngram")
STACKS = ("encoder", "decoder")
WINDOW = 5
"""The default window n, as in Loem et al. 2022."""


@dataclass(frozen=True, slots=True)
class MixerConfig:
    """The mixer of one layer, and its sizes.

    Attributes:
        kind: One of ``MIXERS``.
        window: n of a local or n-gram layer; 0: all positions.
        head_width: Width of an n-gram head; 0: so that the layer has about as many parameters as
            attention.
    """

    kind: str = MIXERS[0]
    window: int = 0
    head_width: int = 0


def attention_layer_below(stack: tuple[MixerConfig, ...], layer: int) -> int | None:
    """The nearest layer below with attention, whose logits are passed up; None for none."""
    return next((n for n in range(layer - 1, -1, -1) if stack[n].kind != "ngram"), None)


def parse_mixers(
    mixers: str, windows: str, widths: str, stack: str, layers: int
) -> tuple[MixerConfig, ...]:
    """Parses the mixer of every layer of a stack.

    Args:
        mixers: Names of ``MIXERS``.
        windows: Their windows; empty: 5.
        widths: Widths of n-gram heads; empty: 0.
        stack: One of ``STACKS``.
        layers: Number of layers of the stack.

    Raises:
        ValueError: A text cannot be parsed, or has another number of layers.
    """
    kinds = parse_by_layer("mixers", mixers or MIXERS[0], stack, layers) or MIXERS[:1] * layers
    for kind in kinds:
        check_choice("mixer", kind, MIXERS)
    spans = _parse_numbers("windows", windows, 1, WINDOW, stack, layers)
    heads = _parse_numbers("ngram_width", widths, 0, 0, stack, layers)
    return tuple(
        MixerConfig(kind, 0 if kind == "attention" else span, width if kind == "ngram" else 0)
        for kind, span, width in zip(kinds, spans, heads, strict=True)
    )


def parse_by_layer(option: str, text: str, stack: str, layers: int) -> tuple[str, ...]:
    """Parses one word for each layer of a stack; empty if the text names only the other stack.

    ``3`` is for all layers, ``3,5*2`` for three, ``encoder=3 decoder=3,5*2`` for each stack.
    """
    parts = _by_stack(option, text)
    own_text = parts.get(stack, parts.get("", ""))
    if not own_text:
        return ()
    words: list[str] = []
    for item in split_items(own_text):
        match = re.fullmatch(r"([^*]+?)(?:\*([1-9]\d{0,3}))?", item)
        if match is None:
            raise ValueError(
                f"{option} {shown(item)}: expected WORD or WORD*TIMES with commas between"
            )
        words += [match[1]] * int(match[2] or 1)
    if "," not in own_text and "*" not in own_text:
        return tuple(words * layers)
    if len(words) != layers:
        raise ValueError(
            f"{option} {shown(own_text)} is for {len(words)} layers: a stack has {layers}"
        )
    return tuple(words)


def named_stacks(option: str, text: str) -> list[str]:
    """The stacks that a text names."""
    return [stack for stack in _by_stack(option, text) if stack]


def _by_stack(option: str, text: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    for part in ",".join(split_items(text)).split():
        stack, named, value = part.rpartition("=")
        if named:
            check_choice(f"stack of {option}", stack, STACKS, ", with a blank between two")
        if stack in parts or (parts and "" in (stack, *parts)):
            raise ValueError(
                f"{option} {shown(text)}: give it once for each stack, or once for both"
            )
        parts[stack] = value
    return parts


def _parse_numbers(
    option: str, text: str, least: int, default: int, stack: str, layers: int
) -> tuple[int, ...]:
    words = parse_by_layer(option, text, stack, layers) or (str(default),) * layers
    for word in words:
        if not word.isdecimal() or int(word) < least:
            raise ValueError(f"{option} must be whole numbers from {least} on, got {shown(word)}")
    return tuple(int(word) for word in words)
