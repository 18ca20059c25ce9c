"""Checkpoints: tensors and facts in one file, written whole or not at all, never unpickled.

A file is safetensors; the facts stand as JSON in its header. Renaming one file is atomic, so that
a process killed at any moment, or a full disk, leaves the previous checkpoint as it was.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

__all__ = ["average", "load", "restore", "save", "weights"]

FORMAT = "latentheads checkpoint 1"


def save(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Writes a checkpoint.

    Args:
        path: The file; an older one there is replaced at the very end.
        tensors: What to keep, by name.
        facts: What else to know, as JSON.

    Raises:
        OSError: It cannot be written; an older file is still whole.
    """
    partial = path.with_name(path.name + ".part")
    packed = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    try:
        save_file(packed, partial, {"format": FORMAT, "facts": json.dumps(facts)})
        _flush(partial)
        os.replace(partial, path)
    except (OSError, SafetensorError) as reason:
        with suppress(OSError):
            partial.unlink()
        raise OSError(f"cannot write {path}: {_heart(reason)}") from reason


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _heart(reason: Exception) -> str:
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    text = str(reason)
    found = re.search(r"I/O error: (.*?)(?: \(os error|$)", text)
    return found[1] if found else text


def load(path: Path, device: torch.device | str = "cpu") -> tuple[dict[str, Tensor], Any]:
    """Reads a checkpoint: its tensors and its facts.

    Raises:
        ValueError: The file is missing, truncated, or none of ours.
    """
    try:
        with safe_open(path, "pt", device=str(device)) as file:
            header = file.metadata() or {}
            if header.get("format") != FORMAT:
                raise ValueError(f"{path} is no checkpoint of latentheads: it lacks {FORMAT!r}")
            names = list(file.keys())
            return {name: file.get_tensor(name) for name in names}, json.loads(header["facts"])
    except FileNotFoundError:
        raise ValueError(f"there is no checkpoint {path}") from None
    except (SafetensorError, OSError) as reason:
        heart = " ".join(str(reason).split())
        raise ValueError(f"{path} is no whole checkpoint: {heart}") from reason


def weights(**modules: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers of modules, each under ``module.name``, shared ones once."""
    found = {}
    for prefix, module in modules.items():
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            found[f"{prefix}.{name}"] = tensor
    return found


def restore(path: Path, tensors: Mapping[str, Tensor], **modules: nn.Module) -> None:
    """Copies tensors into modules; nothing is changed if one is missing or has another shape.

    Args:
        path: Where the tensors come from, for the message.
        tensors: Those of a checkpoint.
        **modules: As for :func:`weights`.

    Raises:
        ValueError: They are not the modules' own.
    """
    wanted = weights(**modules)
    for name, tensor in wanted.items():
        if name not in tensors:
            raise ValueError(f"{path} belongs to another model: it lacks {name}")
        if tensors[name].shape != tensor.shape:
            shapes = f"{list(tensors[name].shape)}, not {list(tensor.shape)}"
            raise ValueError(f"{path} belongs to another model: {name} has shape {shapes}")
    with torch.no_grad():
        for name, tensor in wanted.items():
            tensor.copy_(tensors[name])


def average(paths: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of the tensors of several checkpoints, summed in float64."""
    if not paths:
        raise ValueError("there is no checkpoint to average")
    sums: dict[str, Tensor] = {}
    kinds: dict[str, torch.dtype] = {}
    for path in paths:
        tensors, _ = load(path)
        if sums and (different := set(tensors) ^ set(sums)):
            raise ValueError(f"{path} belongs to another model: {min(different)} is not in all")
        for name, tensor in tensors.items():
            kinds[name] = tensor.dtype
            sums[name] = sums.get(name, 0) + tensor.double()
    return {name: (total / len(paths)).to(kinds[name]) for name, total in sums.items()}
