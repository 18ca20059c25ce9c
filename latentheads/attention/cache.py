"""The key-value cache of attention in incremental decoding."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from latentheads.attention.block import BlockCache, keep_last


@dataclass
class AttentionCache(BlockCache):
    """The keys and values of earlier positions, or of the memory that cross-attention attends to.

    Attributes:
        keys: In self-attention ``sentence *hypothesis head key dim``; of a memory without the
            hypotheses, which share it.
        values: The values, in the same layout.
        max_length: How many of the last positions are cached; None: all.
    """

    keys: Tensor | None = None
    values: Tensor | None = None
    max_length: int | None = None

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Appends the keys and values of new positions and returns them with the cached ones."""
        if self.keys is not None and self.values is not None:
            keys = torch.cat([self.keys, keys], -2)
            values = torch.cat([self.values, values], -2)
        self.keys, self.values = (keep_last(states, self.max_length) for states in (keys, values))
        return keys, values

    def set_memory(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Caches the keys and values of a memory, contiguous since every step uses them."""
        self.keys, self.values, self.has_hypotheses = keys.contiguous(), values.contiguous(), False
        return self.keys, self.values
