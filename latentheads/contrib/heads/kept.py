"""The file of learned alignment heads: tensors and facts in safetensors, written atomically."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from latentheads.checks import check_instance
from latentheads.contrib import kept
from latentheads.contrib.heads.alignment_heads import AlignmentHeads
from latentheads.contrib.heads.boundaries.chain import BoundaryChain
from latentheads.contrib.heads.boundaries.model import BoundaryModel
from latentheads.contrib.heads.boundaries.profiles import Profiles

FORMAT = "alignment heads 1"


def save_alignment_heads(heads: AlignmentHeads, path: str | Path) -> None:
    """Writes learned heads without the attention of their examples, which is large.

    An older file stays until the new one is complete.

    ::

        save_alignment_heads(heads, "whisper.heads")
        heads = load_alignment_heads("whisper.heads")

    Args:
        heads: The heads.
        path: The file.

    Raises:
        ValueError: They are no alignment heads.
        OSError: It cannot be written.
    """
    check_instance("heads", heads, AlignmentHeads, "AlignmentHeads")
    model = heads.model
    parts: dict[str, Any] = {"": heads, "model.": model}
    parts |= {"profiles.": model.profiles, "chain.": model.chain}
    values = {  # not vars(), which has what was computed since
        f"{part}{field.name}": getattr(owner, field.name)
        for part, owner in parts.items()
        for field in fields(owner)
    }
    tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    # no file holds the log-probability of a jump that cannot be; exp of this number is 0 as well
    least = torch.finfo(model.chain.jumps.dtype).min
    tensors |= {name: tensors[name].clamp(min=least) for name in ("chain.jumps", "chain.base")}
    numbers = {name: v for name, v in values.items() if isinstance(v, int | float | None)}
    kept.save(path, FORMAT, tensors, {**numbers, "heads": list(heads.heads)})


def load_alignment_heads(path: str | Path) -> AlignmentHeads:
    """Reads learned heads, for the network that they were learned of.

    Raises:
        ValueError: The file is missing, damaged, or not of alignment heads.
    """
    return kept.load(
        path, FORMAT, "alignment heads", lambda tensors, facts: _read_heads(facts | tensors)
    )


def _read_heads(values: Mapping[str, Any]) -> AlignmentHeads:
    profiles, chain = _read(Profiles, "profiles.", values), _read(BoundaryChain, "chain.", values)
    model = _read(
        BoundaryModel, "model.", {**values, "model.profiles": profiles, "model.chain": chain}
    )
    heads = [(layer, head) for layer, head in values["heads"]]
    return _read(AlignmentHeads, "", {**values, "model": model, "heads": heads, "attentions": []})


def _read(kind: Any, part: str, values: Mapping[str, Any]) -> Any:
    """An object of a dataclass, from values whose names begin with that of the part."""
    return kind(**{field.name: values[f"{part}{field.name}"] for field in fields(kind)})
