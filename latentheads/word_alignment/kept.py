"""The file of a trained aligner: tensors and facts in safetensors, written atomically."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from latentheads.training import checkpoints
from latentheads.word_alignment.aligner import Direction, WordAligner
from latentheads.word_alignment.jumps import Jumps
from latentheads.word_alignment.tokenization import SPLITS
from latentheads.word_alignment.training import AlignerOptions
from latentheads.word_alignment.vocabulary import Vocabulary

FORMAT = "word aligner 2"

DIRECTIONS = ("forward", "backward")


def save_aligner(path: str | Path, aligner: WordAligner) -> None:
    """Writes a trained aligner; an older file is replaced at the end.

    Raises:
        OSError: It cannot be written.
    """
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
    _check(entries.dtype == torch.int64 and entries.dim() == 2 and len(entries) == 2, "entries")
    for row, vocabulary in zip(entries, (source, target), strict=True):
        _check(not row.numel() or 0 <= row.min() <= row.max() < len(vocabulary), "entries")
    forward, backward = (
        _read_direction(tensors, name, sides, entries.shape[1], options)
        for name, sides in zip(DIRECTIONS, ((source, target), (target, source)), strict=True)
    )
    return WordAligner(source, target, entries, forward, backward, options, split)


def _read_vocabulary(words: Any) -> Vocabulary:
    _check(isinstance(words, list) and all(isinstance(word, str) for word in words), "words")
    _check(len(set(words)) == len(words), "words")
    return Vocabulary(tuple(words))


def _read_direction(
    tensors: dict[str, Tensor],
    name: str,
    sides: tuple[Vocabulary, Vocabulary],
    entries: int,
    options: AlignerOptions,
) -> Direction:
    """Reads one direction, whose first vocabulary is that of the words that generate."""
    generating, generated = map(len, sides)
    values = {key: tensors[f"{name}.{key}"] for key in ("counts", "null", "frequencies", "jumps")}
    shapes = {"counts": (entries,), "null": (generated,), "frequencies": (generated,)}
    for key, shape in shapes.items():
        _check(tuple(values[key].shape) == shape, f"{name}.{key}")
    jumps = values.pop("jumps")
    is_table = jumps.dim() == 2 and len(jumps) == generating + 2 and jumps.shape[1] % 2 == 1
    _check(is_table and bool((jumps > 0).all()), f"{name}.jumps")
    _check(
        all(value.is_floating_point() and bool((value >= 0).all()) for value in values.values()),
        f"{name}.counts",
    )
    smoothing = options.jump_smoothing
    return Direction(**values, jumps=Jumps(jumps, options.null_probability, smoothing))


def _check(is_valid: bool, name: str) -> None:
    if not is_valid:
        raise ValueError(f"{name} of it cannot be those of an aligner")
