"""Lists of alignment heads in the formats of programs that take them."""

from __future__ import annotations

import base64
import gzip
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from latentheads.contrib.heads.word_attention import Head

LIKELY = 0.5
"""Probability above which a head is likely to be an alignment head."""


def describe_unlikely(probabilities: Mapping[Head, float]) -> str:
    """The warning if no head is likely to be an alignment head; else empty."""
    best = max(probabilities.values(), default=0.0)
    if best > LIKELY:
        return ""
    return (
        f"no head has P above {LIKELY} of being an alignment head, the likeliest {best:.2f}: "
        "heads hardly show where words are, so times and links are hardly more than the prior"
    )


def _sort_heads(heads: Sequence[Head]) -> list[Head]:
    # the keys of a mapping are all heads, whatever their score
    if isinstance(heads, Mapping) or not isinstance(heads, Iterable):
        raise ValueError("heads must be a list of (layer, head), such as heads.sufficient()")
    return sorted(heads)


def to_generation_config(heads: Sequence[Head]) -> list[list[int]]:
    """``generation_config.alignment_heads`` of ``transformers``.

    CTranslate2 (faster-whisper) has the same list under ``alignment_heads`` in its ``config.json``.

    Args:
        heads: Layer and index of each head.
    """
    return [[layer, head] for layer, head in _sort_heads(heads)]


def to_whisper_cpp(heads: Sequence[Head], name: str = "custom") -> str:
    """The list that whisper.cpp has for each network, to give as ``WHISPER_AHEADS_CUSTOM``.

    Args:
        heads: Layer and index of each head.
        name: What ends the name of the list.
    """
    pairs = ", ".join(f"{{{layer}, {head}}}" for layer, head in _sort_heads(heads))
    return f"static const whisper_ahead g_aheads_{name}[] = {{ {pairs} }};"


def to_openai(heads: Sequence[Head], shape: tuple[int, int]) -> bytes:
    """What ``set_alignment_heads`` of OpenAI's Whisper takes.

    Args:
        heads: Layer and index of each head.
        shape: Layers, and heads of each.
    """
    mask = np.zeros(shape, bool)
    for layer, head in _sort_heads(heads):
        mask[layer, head] = True
    return base64.b85encode(gzip.compress(mask.tobytes(), mtime=0))


def to_nllw(
    scores: Mapping[Head, float], shape: tuple[int, int], model: str, direction: str
) -> dict[str, Any]:
    """The JSON of NoLanguageLeftWaiting (AlignAtt), best head first, without heads that score 0.

    Args:
        scores: The score of each head, here its probability. Heads of one score stay in order:
            ``heads.probabilities`` has the most informative ones first.
        shape: Layers, and heads of each.
        model: The name of the network.
        direction: Source and target, as ``en-de``.

    Warns:
        UserWarning: No head has a score above one half.
    """
    if message := describe_unlikely(scores):
        warnings.warn(message, stacklevel=2)
    scored = [(head, score) for head, score in scores.items() if score > 0]
    ranked = sorted(scored, key=lambda item: -item[1])
    return {
        "model": model,
        "language_pair": direction,
        "direction": direction,
        "num_layers": shape[0],
        "num_heads": shape[1],
        "token_alignment_heads": [
            {"layer": layer, "head": head, "ts": round(score, 4)} for (layer, head), score in ranked
        ],
    }
