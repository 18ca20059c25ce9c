"""Which keys a query may read, and which (query, key) pairs carry a latent."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor

__all__ = ["AttentionMask", "PairMask", "causal"]


@dataclass(frozen=True, slots=True)
class PairMask:
    """The validity of a block's (query, key) pairs, made once a pass and shared by its chain.

    Attributes:
        bias: Added to the logits just before the softmax: 0 where a key may be read, else -inf.
        latent: 1 where a pair carries a latent, 0 elsewhere. A padded query, a padded or future
            key, and a row with a single readable key carry none.
        pairs: How many pairs of each sentence carry a latent.
    """

    bias: Float[Tensor, "*batch 1 query key"]
    latent: Float[Tensor, "*batch query key"]
    pairs: Float[Tensor, "*batch"]

    @classmethod
    def build(
        cls,
        readable: Bool[Tensor, "*batch query key"],
        queries: Bool[Tensor, "*batch query"],
        dtype: torch.dtype = torch.float32,
    ) -> PairMask:
        """Makes the mask of a block from the keys each query may read and the real queries.

        A row without a readable key reads everything, so that its softmax stays finite; it is
        padding and is never counted.
        """
        counts = readable.sum(-1, keepdim=True)
        bias = torch.zeros(readable.shape, dtype=dtype, device=readable.device)
        bias = bias.masked_fill(~readable & (counts > 0), -torch.inf)
        latent = (readable & queries.unsqueeze(-1) & (counts > 1)).to(dtype)
        return cls(bias.unsqueeze(-3), latent, latent.sum((-1, -2)))

    def to_dense(self, logits: Tensor) -> tuple[Tensor, PairMask]:
        """Logits and mask with a column for every key: as they are."""
        return logits, self


@dataclass(frozen=True)
class AttentionMask:
    """Which positions the layers of a stack may read, from which the masks of pairs are made.

    Attributes:
        drawn: The queries whose heads are drawn.
        valid: The positions that are no padding; None in a causal stack, where padding follows
            every real token.
        start: Position of the first query.
        dtype: Of densities.
    """

    drawn: Bool[Tensor, "*batch query"]
    valid: Bool[Tensor, "*batch key"] | None = None
    start: int = 0
    dtype: torch.dtype = torch.float32

    @cached_property
    def mask(self) -> PairMask:
        """The mask of all pairs, made where a layer asks for it and shared by the others."""
        queries = self.drawn.shape[-1]
        if self.valid is None:
            readable = causal(self.start + queries, self.drawn.device, self.start)
        else:
            readable = self.valid.unsqueeze(-2)
        shape = (*self.drawn.shape, readable.shape[-1])
        return PairMask.build(readable.expand(shape), self.drawn, self.dtype)

    def outputs(self, size: int) -> PairMask:
        """The mask of what heads say: every coordinate at a real query carries a latent.

        Its columns are coordinates instead of keys, and all of them may be read.

        Args:
            size: Width of what a head says.
        """
        latent = self.drawn.to(self.dtype).unsqueeze(-1).expand(*self.drawn.shape, size)
        bias = latent.new_zeros(()).expand(latent.shape).unsqueeze(-3)
        return PairMask(bias, latent, latent.sum((-1, -2)))


def causal(
    length: int, device: torch.device | None = None, start: int = 0
) -> Bool[Tensor, "query length"]:
    """True where key s is not later than query t, of the queries from a position on."""
    return torch.ones(length - start, length, dtype=torch.bool, device=device).tril(start)
