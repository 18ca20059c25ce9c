"""A step that is captured once and replayed on other numbers, as a CUDA graph replays kernels.

On the second device the operations of a step are noted with the memory that they read and write.
A replay runs them again, without the Python that called them: what depended on the numbers of the
captured batch, such as a shape, a branch or a number that Python read, would stay as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from latentheads.training.graphs import Captured
from tests.second_device import FarTensor, tensors_in


class Capture(TorchDispatchMode):
    """While it is open, operations on the second device are noted."""

    def __init__(self) -> None:
        super().__init__()
        self._operations: list[tuple[Any, Any, Any, list[FarTensor]]] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs an operation, and notes it unless its output is a view, which is no work."""
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        outputs = [out for out in tensors_in([output]) if isinstance(out, FarTensor)]
        if outputs or FarTensor in types:
            inputs = tensors_in([*args, *kwargs.values()])
            if not all(isinstance(given, FarTensor) for given in inputs):
                raise RuntimeError(f"{func} reads memory of the CPU, which a replay does not see")
            if not _is_view(func):
                self._operations.append((func, args, kwargs, outputs))
        return output

    @torch.no_grad()
    def replay(self) -> None:
        """Runs all operations again, on what now stands in the memory that they read."""
        for func, args, kwargs, outputs in self._operations:
            for output, new in zip(outputs, tensors_in([func(*args, **kwargs)]), strict=True):
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
