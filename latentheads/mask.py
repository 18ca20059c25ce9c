"""Masks: which keys a query may attend to, and which (query, key) pairs carry a latent."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import torch
from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True, slots=True)
class PairMask:
    """The mask of a block's (query, key) pairs, shared by all blocks of an attention type.

    Attributes:
        bias: Added to the logits before the softmax: 0 where a query may attend to a key, else
            -inf.
        latent: 1 where a pair carries a latent, else 0. A padded query, a padded or future key, and
            a row with a single unmasked key carry none.
        pairs: Number of pairs of each sentence that carry a latent.
        is_causal: Whether the bias is exactly that of a causal stack, query t before key t.
        is_latent: Whether a pair carries a latent; None: see ``latent``.
    """

    bias: Float[Tensor, "*batch 1 query key"]
    latent: Float[Tensor, "*batch query key"]
    pairs: Float[Tensor, "*batch"]
    is_causal: bool = field(default=False, kw_only=True)
    is_latent: Bool[Tensor, "*batch query key"] | None = field(default=None, kw_only=True)

    @classmethod
    def build(
        cls,
        attn_mask: Bool[Tensor, "*batch query key"],
        queries: Bool[Tensor, "*batch query"],
        dtype: torch.dtype = torch.float32,
        is_causal: bool = False,
    ) -> PairMask:
        """Make the mask from the keys that each query may attend to, and the real queries.

        A row whose keys are all masked attends to all, so that its softmax stays finite. It is
        padding and is never counted.
        """
        num_keys = attn_mask.sum(-1, keepdim=True)
        bias = torch.zeros(attn_mask.shape, dtype=dtype, device=attn_mask.device)
        bias = bias.masked_fill(~attn_mask & (num_keys > 0), -torch.inf)
        is_latent = attn_mask & queries.unsqueeze(-1) & (num_keys > 1)
        latent = is_latent.to(dtype)
        pairs = latent.sum((-1, -2))
        parts = bias.unsqueeze(-3), latent, pairs
        return cls(*parts, is_causal=is_causal, is_latent=is_latent)

    def to_dense(self, logits: Tensor) -> tuple[Tensor, PairMask]:
        """Logits and mask with a column for every key: unchanged."""
        return logits, self


@dataclass(frozen=True)
class AttentionMask:
    """Which positions the layers of a stack may attend to; makes the masks of pairs.

    Attributes:
        latent_queries: True at queries whose heads are latent.
        valid: True at positions that are not padding; None in a causal stack, where padding is on
            the right.
        start: Position of the first query.
        dtype: The dtype of densities.
    """

    latent_queries: Bool[Tensor, "*batch query"]
    valid: Bool[Tensor, "*batch key"] | None = None
    start: int = 0
    dtype: torch.dtype = torch.float32

    @cached_property
    def mask(self) -> PairMask:
        """The mask of all pairs, computed on first use."""
        num_queries = self.latent_queries.shape[-1]
        if self.valid is None:
            attn_mask = causal(self.start + num_queries, self.latent_queries.device, self.start)
        else:
            attn_mask = self.valid.unsqueeze(-2)
        shape = (*self.latent_queries.shape, attn_mask.shape[-1])
        is_causal = self.valid is None and not self.start
        return PairMask.build(
            attn_mask.expand(shape), self.latent_queries, self.dtype, is_causal=is_causal
        )

    def outputs(self, size: int) -> PairMask:
        """The mask of latent head outputs: every coordinate at a latent query carries a latent.

        Its columns are coordinates instead of keys, and none is masked.
        """
        latent = (
            self.latent_queries.to(self.dtype)
            .unsqueeze(-1)
            .expand(*self.latent_queries.shape, size)
        )
        bias = latent.new_zeros(()).expand(latent.shape).unsqueeze(-3)
        return PairMask(bias, latent, latent.sum((-1, -2)))


def causal(
    length: int, device: torch.device | None = None, start: int = 0
) -> Bool[Tensor, "query length"]:
    """The causal mask: True where key s is not later than query t, for queries from ``start``."""
    return torch.ones(length - start, length, dtype=torch.bool, device=device).tril(start)
