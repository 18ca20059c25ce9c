"""How large the tensors are that are made, as the scores of a vocabulary."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from latentheads.latents.alignments import emission
from latentheads.layers import linear_log_prob


class Largest(TorchDispatchMode):
    """Notes the size of the largest tensor that is made, or made with a number for every type.

    Args:
        types: The vocabulary's size, which nothing else has; None: any tensor counts.
    """

    def __init__(self, types: int | None = None) -> None:
        super().__init__()
        self.types, self.size = types, 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        actual = func(*args, **(kwargs or {}))
        made = [item for item in tree_leaves(actual) if isinstance(item, Tensor)]
        counted = [tensor for tensor in made if self.types is None or self.types in tensor.shape]
        self.size = max([self.size, *(tensor.numel() for tensor in counted)])
        return actual


def cut(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    """Keeps so many numbers in memory at a time, of few words of the vocabulary."""
    monkeypatch.setitem(linear_log_prob.CHUNK, "cpu", chunk)
    monkeypatch.setitem(linear_log_prob.STRIP, "cpu", chunk)
    monkeypatch.setitem(emission.PAIR_BUFFER_SIZE, "cpu", chunk)
    monkeypatch.setattr(emission, "MIN_TOKENS", 3)


class Peak(TorchDispatchMode):
    """Notes the most bytes of large tensors that are in memory at once.

    Args:
        least: Bytes of a tensor that counts.
    """

    def __init__(self, least: int) -> None:
        super().__init__()
        self.least, self.size, self.sizes = least, 0, dict[int, int]()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        actual = func(*args, **(kwargs or {}))
        for made in tree_leaves(actual):
            if isinstance(made, Tensor) and made.untyped_storage().nbytes() >= self.least:
                storage = made.untyped_storage()
                if storage._cdata not in self.sizes:
                    self.sizes[storage._cdata] = storage.nbytes()
                    weakref.finalize(storage, self.sizes.pop, storage._cdata)
        self.size = max(self.size, sum(self.sizes.values()))
        return actual
