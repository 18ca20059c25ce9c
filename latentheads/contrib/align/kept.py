"""The file of a trained aligner: tensors and facts in safetensors, written atomically."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from latentheads.contrib import kept
from latentheads.contrib.align.aligner import Direction, WordAligner
from latentheads.contrib.align.jumps import Jumps
from latentheads.contrib.align.training import AlignerOptions
from latentheads.contrib.align.vocabulary import Vocabulary
from latentheads.errors import shown

FORMAT = "word aligner 3"

DIRECTIONS = ("forward", "backward")

TABLES = ("counts", "null", "frequencies", "jumps")
"""What is kept of a direction."""


def save_aligner(aligner: WordAligner, path: str | Path) -> None:
    """Writes a trained aligner; an older file stays until the new one is complete.

    Args:
        aligner: The aligner, such as that of :func:`latentheads.align`.
        path: The file.

    Raises:
        ValueError: It is no aligner.
        OSError: It cannot be written.
    """
    if not isinstance(aligner, WordAligner):
        raise ValueError(f"save_aligner takes (aligner, path), got {shown(aligner)} as aligner")
    tensors: dict[str, Tensor] = {"entries": aligner.entries}
    for name in DIRECTIONS:
        direction: Direction = getattr(aligner, name)
        tables = direction.counts, direction.null, direction.frequencies, direction.jumps.weights
        tensors |= {f"{name}.{key}": table for key, table in zip(TABLES, tables, strict=True)}
    facts = {
        "source": aligner.source.words,
        "target": aligner.target.words,
        "options": vars(aligner.options),
        "split": aligner.split,
        "pseudocount": aligner.pseudocount,
        "alike": [getattr(aligner, name).alike for name in DIRECTIONS],
    }
    kept.save(path, FORMAT, tensors, facts)


def load_aligner(path: str | Path) -> WordAligner:
    """Reads a trained aligner.

    Raises:
        ValueError: The file is missing, damaged, or no aligner.
    """
    return kept.load(path, FORMAT, "a word aligner", _read_aligner)


def _read_aligner(tensors: dict[str, Tensor], facts: dict[str, Any]) -> WordAligner:
    options = AlignerOptions(**facts["options"])
    forward, backward = (
        _read_direction(tensors, name, options, alike)
        for name, alike in zip(DIRECTIONS, facts["alike"], strict=True)
    )
    return WordAligner(
        Vocabulary(tuple(facts["source"])),
        Vocabulary(tuple(facts["target"])),
        tensors["entries"],
        forward,
        backward,
        options,
        facts["split"],
        facts["pseudocount"],
    )


def _read_direction(
    tensors: dict[str, Tensor], name: str, options: AlignerOptions, alike: float
) -> Direction:
    counts, null, frequencies, weights = (tensors[f"{name}.{key}"] for key in TABLES)
    jumps = Jumps(weights, options.null_probability, options.jump_smoothing)
    return Direction(counts, null, frequencies, jumps, alike)
