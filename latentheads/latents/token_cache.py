"""Results that a pass of a network keeps for the tokens that they were computed of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor

from latentheads.layers.numeric import version_of

T = TypeVar("T")


class TokenCache(Generic[T]):
    """Results by tokens, with and without a graph; tokens that were changed in place have none."""

    def __init__(self) -> None:
        self._results: dict[object, tuple[Tensor, T]] = {}

    def get(self, tokens: Tensor, compute: Callable[[], T]) -> T:
        """The result of some tokens, computed if there is none.

        Args:
            tokens: The tokens, which are kept alive: their address stays theirs.
            compute: Computes the result.
        """
        address = tokens.data_ptr(), tokens.shape, tokens.stride()
        key = address, version_of(tokens), torch.is_grad_enabled()
        # an inference tensor has no version: whether it was changed is not known
        if key not in self._results or tokens.is_inference():
            self._results[key] = tokens, compute()
        return self._results[key][1]
