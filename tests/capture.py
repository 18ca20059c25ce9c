"""A step that is captured once and replayed on other numbers, as a CUDA graph replays kernels.

On the second device the operations of a step are noted with the memory that they read and write.
A replay runs them again, without the Python that called them: what depended on the numbers of the
captured batch, such as a shape, a branch or a number that Python read, would stay as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from latentheads.training.graphs import Captured
from tests.second_device import FarTensor


class Capture(TorchDispatchMode):
    """While it is open, operations on the second device are noted."""

    def __init__(self) -> None:
        super().__init__()
        self._operations: list[tuple[Any, Any, Any, list[FarTensor]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs an operation, and notes it unless its output is a view, which is no work."""
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        outputs = [leaf for leaf in tree_leaves(output) if isinstance(leaf, FarTensor)]
        if any(isinstance(leaf, FarTensor) for leaf in [*inputs, *outputs]):
            if not all(isinstance(leaf, FarTensor) for leaf in inputs):
                raise RuntimeError(f"{func} reads memory of the CPU, which a replay does not see")
            if not _is_view(func):
                self._operations.append((func, args, kwargs, outputs))
        return output

    @torch.no_grad()
    def replay(self) -> None:
        """Runs all operations again, on what now stands in the memory that they read."""
        for func, args, kwargs, outputs in self._operations:
            again = [leaf for leaf in tree_leaves(func(*args, **kwargs)) if leaf is not None]
            for output, new in zip(outputs, again, strict=True):
                if new.near is not output.near:  # was written in place
                    # an output of other sizes has no room
                    output.near.copy_(new.near.view_as(output.near))


def capture_operations(
    work: Callable[[], Captured], *_: Any
) -> tuple[Captured, Callable[[], None]]:
    """Captures operations on the second device."""
    with Capture() as capture:
        outputs = work()
    return outputs, capture.replay


def _is_view(func: Any) -> bool:
    aliases = [returned.alias_info for returned in func._schema.returns]
    return any(alias is not None and not alias.is_write for alias in aliases)
