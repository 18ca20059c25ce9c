"""Files of what was learned: tensors and facts in safetensors, each file of one kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from torch import Tensor

from latentheads.training import checkpoints

T = TypeVar("T")

KIND = "kind"


def save(
    path: str | Path, kind: str, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]
) -> None:
    """Writes a file of a kind; an older file stays until the new one is complete."""
    checkpoints.save(Path(path), tensors, {**facts, KIND: kind})


def load(
    path: str | Path, kind: str, what: str, read: Callable[[dict[str, Tensor], dict[str, Any]], T]
) -> T:
    """Reads a file of a kind.

    Args:
        path: The file.
        kind: The kind.
        what: What such a file is of, in messages.
        read: Makes what the file is of from its tensors and facts.

    Raises:
        ValueError: The file is missing, damaged or of another kind.
    """
    tensors, facts = checkpoints.load(Path(path))
    if facts.pop(KIND, None) != kind:
        raise ValueError(f"{path} is not of {what} of this version")
    try:
        return read(tensors, facts)
    except (KeyError, TypeError, IndexError, RuntimeError, ValueError) as reason:
        message = " ".join(str(reason).split())
        raise ValueError(f"{path} is not complete: {message}") from reason
