"""Checkpoints: tensors and facts in one file, written whole or not at all, never unpickled.

A file is safetensors; the facts stand as JSON in its header, and a checksum of all that it holds.
Renaming one file is atomic, so that a process killed at any moment, or a full disk, leaves the
previous checkpoint as it was. A number that is not finite is not saved.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from latentheads.files import atomic_write

FORMAT = "latentheads checkpoint 2"


def save(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Writes a checkpoint.

    Args:
        path: The file; an older one stays until the new one is complete.
        tensors: What to keep, by name.
        facts: Further content, as JSON.

    Raises:
        OSError: It cannot be written; an older file is still whole.
        FloatingPointError: A tensor is not finite; an older file is still whole.
    """
    packed = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    if (non_finite := _first_non_finite(packed)) is not None:
        raise FloatingPointError(f"{path} is not written: {non_finite} is not finite")
    facts_json = json.dumps(facts)
    header = {"format": FORMAT, "facts": facts_json, "checksum": checksum(packed, facts_json)}
    with atomic_write(path) as partial:
        try:
            save_file(packed, partial, header)
        except SafetensorError as reason:
            raise OSError(_extract_os_error(reason)) from reason


def _extract_os_error(reason: Exception) -> str:
    match = re.search(r"I/O error: (.*?)(?: \(os error|$)", str(reason))
    return match[1] if match else str(reason)


def checksum(tensors: Mapping[str, Tensor], facts: str = "") -> str:
    """The CRC-32 of facts and tensors: fast, and enough against accidents."""
    crc = zlib.crc32(facts.encode())
    for name, tensor in sorted(tensors.items()):
        crc = zlib.crc32(f"{name} {tensor.dtype} {list(tensor.shape)}".encode(), crc)
        values = tensor.detach().cpu().reshape(-1)
        crc = zlib.crc32(values.view(torch.uint8).numpy().data, crc)
    return f"{crc:08x}"


def _first_non_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """The name of the first tensor with a number that is not finite."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and tensor.numel():
            low, high = tensor.aminmax()  # ten times as fast as a look at every number
            if not (math.isfinite(low.item()) and math.isfinite(high.item())):
                return name
    return None


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Reads a checkpoint: its tensors and its facts.

    Raises:
        ValueError: The file is missing, damaged, or none of ours.
    """
    try:
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in list(file.keys())}
    except FileNotFoundError:
        raise ValueError(f"there is no checkpoint {path}") from None
    except OSError as reason:
        raise ValueError(f"cannot read {path}: {reason.strerror or reason}") from reason
    except (SafetensorError, RuntimeError, ValueError, OverflowError) as reason:
        message = " ".join(str(reason).split())
        raise ValueError(f"{path} is not a complete checkpoint: {message}") from reason
    return tensors, _check_header(path, header, tensors)


def _check_header(
    path: Path, header: Mapping[str, str], tensors: Mapping[str, Tensor]
) -> dict[str, Any]:
    """The facts of a header, where it belongs to these tensors."""
    facts_json = header.get("facts", "")
    if header.get("format") != FORMAT:
        raise ValueError(f"{path} is not a checkpoint of latentheads: it has no {FORMAT!r}")
    if header.get("checksum") != checksum(tensors, facts_json):
        raise ValueError(
            f"{path} is not a complete checkpoint: it has changed since it was written"
        )
    facts: dict[str, Any] = json.loads(facts_json)
    return facts


def read_counts(facts: Mapping[str, Any]) -> tuple[int, int]:
    """The steps that the weights have seen, and how many checkpoints they average; 0: none."""
    return facts["step"], facts.get("averaged", 0)


def weights(**modules: nn.Module) -> dict[str, Tensor]:
    """The parameters and buffers of modules, each under ``module.name``, shared ones once."""
    tensors = {}
    for prefix, module in modules.items():
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            tensors[f"{prefix}.{name}"] = tensor
    return tensors


def restore(path: Path, tensors: Mapping[str, Tensor], **modules: nn.Module) -> None:
    """Copies tensors into modules; nothing is changed if one is missing or of another kind.

    Args:
        path: Where the tensors come from, for the message.
        tensors: Those of a checkpoint.
        **modules: As for :func:`weights`.
    """
    wanted = weights(**modules)
    for name, tensor in wanted.items():
        if difference := _difference(name, tensors.get(name), tensor):
            raise ValueError(f"{path} belongs to another model: {difference}")
    with torch.no_grad():
        for name, tensor in wanted.items():
            tensor.copy_(tensors[name])


def _difference(name: str, stored: Tensor | None, wanted: Tensor) -> str:
    """Why a tensor of a checkpoint is not one of a module; empty if it is."""
    if stored is None:
        return f"it has no {name}"
    if stored.shape != wanted.shape:
        return f"{name} has shape {list(stored.shape)}, not {list(wanted.shape)}"
    if not _is_lossless_cast(wanted.dtype, stored.dtype):
        return f"{name} is {stored.dtype}, not {wanted.dtype}"
    return ""


def widen(tensors: Mapping[str, Tensor], **modules: nn.Module) -> None:
    """Puts modules in float32 into float64 where a checkpoint holds them in it."""
    for prefix, module in modules.items():
        own = weights(**{prefix: module})
        kinds = {(own[name].dtype, tensors[name].dtype) for name in own.keys() & tensors.keys()}
        if (torch.float32, torch.float64) in kinds:
            module.double()


def _is_lossless_cast(kind: torch.dtype, stored: torch.dtype) -> bool:
    """Whether numbers of one kind stay what they are in another: the same, or finer floats."""
    floats = kind.is_floating_point and stored.is_floating_point
    return kind == stored or (floats and torch.promote_types(kind, stored) == kind)


def average(paths: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of the tensors of several checkpoints, summed in float64."""
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
