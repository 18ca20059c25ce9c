"""Validation of a training checkpoint, whose file may come from anywhere."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from latentheads.training.optimizers import state_names

FACTS = {
    **{"step": int, "place": dict, "stopped": bool, "tokens": int},
    **{"seconds": float, "processes": int, "scaler": dict},
}
"""The facts of a checkpoint, and their types."""


def check_moments(
    tensors: Mapping[str, Tensor],
    parameters: Mapping[str, Tensor],
    optimizers: Iterable[torch.optim.Optimizer],
) -> None:
    """Raises an error if the optimizer moments do not fit the optimizers and their parameters."""
    names = {
        parameter: state_names(optimizer)
        for optimizer in optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    kept: dict[str, set[str]] = defaultdict(set)
    for name, tensor in tensors.items():
        if name.startswith("optimiser."):
            owner, _, kind = name.removeprefix("optimiser.").rpartition(".")
            kept[owner].add(kind)
            shape = parameters[owner].shape if owner in parameters else None
            if tensor.shape != (() if kind == "step" else shape):
                raise ValueError(f"{name!r} has shape {list(tensor.shape)}")
    for owner, kinds in kept.items():
        if owner not in parameters or kinds != names[parameters[owner]]:
            raise ValueError(f"the optimiser of {owner!r} has {sorted(kinds)}")


def check_noise(noise: Tensor, processes: int, device: str) -> None:
    """Raises an error if the states do not restore a random generator of the device."""
    if not noise.ndim or len(noise) != processes:
        raise ValueError("it has no loss, or no noise of a process")
    try:
        for row in noise:
            # a view is read from the start of its storage
            torch.Generator(device).set_state(row.clone())
    except (RuntimeError, TypeError) as reason:
        raise ValueError(f"its noise is none: {reason}") from reason


def check_facts(facts: dict[str, Any], steps: int) -> None:
    """Raises an error for invalid values of the facts."""
    for name, kind in FACTS.items():
        if type(facts.get(name)) is not kind:
            raise ValueError(f"{name} must be {kind.__name__}, got {facts.get(name)!r}")
    loader_state = facts["place"]
    if set(loader_state) != {"epoch", "batch"} or not all(
        type(count) is int for count in loader_state.values()
    ):
        raise ValueError(f"place must be an epoch and a batch, got {loader_state}")
    numbers = {
        name: facts[name] for name in ("step", "tokens", "seconds", "processes")
    } | loader_state
    for name, value in numbers.items():
        most = steps if name == "step" else 2**63 - 1
        if not 0 <= value <= most:
            raise ValueError(f"{name} must lie between 0 and {most:,}, got {value:,}")
