"""The file of a trained aligner: tensors and facts in safetensors, written atomically."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from latentheads.contrib.align.aligner import Direction, WordAligner
from latentheads.contrib.align.jumps import LEAST_WEIGHT, Jumps
from latentheads.contrib.align.tokenization import SPLITS
from latentheads.contrib.align.training import AlignerOptions
from latentheads.contrib.align.vocabulary import Vocabulary
from latentheads.errors import shown
from latentheads.training import checkpoints

FORMAT = "word aligner 3"

DIRECTIONS = ("forward", "backward")

TABLES = ("counts", "null", "frequencies", "jumps")
"""What is kept of a direction."""

MAX_WEIGHT = 1e12
"""Largest weight of a jump, so large that the least one has a probability beside it."""

MAX_WORDS = 2**40
"""Most words of a text."""

ROUNDING = 1.01
"""How far sums of probabilities may exceed a whole number by rounding."""


def save_aligner(aligner: WordAligner, path: str | Path) -> None:
    """Writes a trained aligner; an older file is replaced at the end.

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
        tensors |= {f"{name}.{key}": value for key, value in _tensors_of(direction).items()}
    facts = {
        "kind": FORMAT,
        "source": aligner.source.words,
        "target": aligner.target.words,
        "options": vars(aligner.options),
        "split": aligner.split,
        "pseudocount": aligner.pseudocount,
        "alike": [getattr(aligner, name).alike for name in DIRECTIONS],
    }
    checkpoints.save(Path(path), tensors, facts)


def _tensors_of(direction: Direction) -> dict[str, Tensor]:
    return {
        "counts": direction.counts,
        "null": direction.null,
        "frequencies": direction.frequencies,
        "jumps": direction.jumps.weights,
    }


def load_aligner(path: str | Path) -> WordAligner:
    """Reads a trained aligner.

    Raises:
        ValueError: The file is missing, damaged, or no aligner.
    """
    tensors, facts = checkpoints.load(Path(path))
    if facts.get("kind") != FORMAT:
        raise ValueError(f"{path} is not a word aligner of this version, which --keep writes")
    try:
        return _read_aligner(tensors, facts)
    except (KeyError, TypeError, IndexError, RuntimeError, ValueError) as reason:
        message = " ".join(str(reason).split())
        raise ValueError(f"{path} is not a complete word aligner: {message}") from reason


def _read_aligner(tensors: dict[str, Tensor], facts: dict[str, Any]) -> WordAligner:
    options, split = AlignerOptions(**facts["options"]), facts["split"]
    source, target = (_read_vocabulary(facts[side]) for side in ("source", "target"))
    entries = tensors["entries"]
    _check(split in SPLITS, "split")
    _check(entries.dtype == torch.int32 and entries.dim() == 2 and len(entries) == 2, "entries")
    for row, vocabulary in zip(entries, (source, target), strict=True):
        _check(not row.numel() or 0 <= row.min() <= row.max() < len(vocabulary), "entries")
    keys = entries[0].long() * len(target) + entries[1]
    _check(bool((keys.diff() > 0).all()), "entries")
    pseudocount = facts.get("pseudocount", 0.0)  # files of earlier revisions have none
    _check(isinstance(pseudocount, float) and 0 <= pseudocount <= MAX_WORDS, "pseudocount")
    _check_tables(tensors, (source, target), entries, pseudocount)
    forward, backward = (
        _read_direction(tensors, name, options, alike)
        for name, alike in zip(DIRECTIONS, facts["alike"], strict=True)
    )
    return WordAligner(source, target, entries, forward, backward, options, split, pseudocount)


def _read_direction(
    tensors: dict[str, Tensor], name: str, options: AlignerOptions, alike: Any
) -> Direction:
    _check(isinstance(alike, float) and 0 <= alike <= ROUNDING, "alike")
    counts, null, frequencies, weights = (tensors[f"{name}.{key}"] for key in TABLES)
    jumps = Jumps(weights, options.null_probability, options.jump_smoothing)
    return Direction(counts, null, frequencies, jumps, alike)


def _read_vocabulary(words: Any) -> Vocabulary:
    _check(isinstance(words, list) and all(isinstance(word, str) for word in words), "words")
    _check(len(set(words)) == len(words), "words")
    return Vocabulary(tuple(words))


def _check_tables(
    tensors: dict[str, Tensor],
    sides: tuple[Vocabulary, Vocabulary],
    entries: Int[Tensor, "2 entry"],
    pseudocount: float,
) -> None:
    """Checks types, shapes and ranges of the tables of both directions."""
    _check_types(tensors)
    words = dict(zip(DIRECTIONS, map(len, sides[::-1]), strict=True))
    for name, others in zip(DIRECTIONS, reversed(DIRECTIONS), strict=True):
        shapes = {
            "counts": entries.shape[1:],
            "null": (words[name],),
            "frequencies": (words[name],),
        }
        for key, shape in shapes.items():
            _check(tensors[f"{name}.{key}"].shape == shape, f"{name}.{key}")
        _check_jumps(tensors[f"{name}.jumps"], words[others], f"{name}.jumps")
        _check_frequencies(tensors[f"{name}.frequencies"], f"{name}.frequencies")
    target, source = (tensors[f"{name}.frequencies"] for name in DIRECTIONS)
    most = torch.maximum(source[entries[0]], target[entries[1]]) + pseudocount
    for name in DIRECTIONS:
        _check_counts(tensors[f"{name}.counts"], most, f"{name}.counts")
        _check_counts(tensors[f"{name}.null"], tensors[f"{name}.frequencies"], f"{name}.null")


def _check_types(tensors: dict[str, Tensor]) -> None:
    """Checks that all tables are finite numbers of one type."""
    for name in (f"{direction}.{key}" for direction in DIRECTIONS for key in TABLES):
        table = tensors[name]
        is_one_type = table.dtype == tensors["forward.counts"].dtype
        _check(is_one_type and table.dtype in (torch.float32, torch.float64), f"type of {name}")
        _check(bool(table.isfinite().all()), name)


def _check_jumps(weights: Tensor, words: int, name: str) -> None:
    """Checks weights that are normalised to probabilities."""
    is_table = weights.dim() == 2 and len(weights) == words + 2 and weights.shape[1] % 2 == 1
    _check(
        is_table and bool(((weights >= 0.5 * LEAST_WEIGHT) & (weights <= MAX_WEIGHT)).all()), name
    )


def _check_frequencies(frequencies: Tensor, name: str) -> None:
    is_whole = (
        (frequencies >= 0) & (frequencies <= MAX_WORDS) & (frequencies == frequencies.round())
    )
    _check(bool(is_whole.all()), name)


def _check_counts(counts: Tensor, most: Tensor, name: str) -> None:
    """Checks sums of probabilities, each at most the number of words that they are summed over."""
    _check(bool(((counts >= 0) & (counts <= ROUNDING * most)).all()), name)


def _check(is_valid: bool, name: str) -> None:
    if not is_valid:
        raise ValueError(f"{name} of it cannot be those of an aligner")
