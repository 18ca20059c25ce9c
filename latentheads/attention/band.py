"""Bands: the pairs of a query and the keys near it, in time and memory linear in the length.

A tensor over the pairs of a band has the layout ``query offset``: offset o of query t is key
t - before + o. Queries are processed in blocks: each is one dense product with all keys near the
block, whose diagonals are the band.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from latentheads.mask import AttentionMask, PairMask

BLOCK = 16
"""Queries of a block, if the band is not wider: smaller products are slower."""


@dataclass(frozen=True, slots=True)
class Band:
    """The window of n positions that ends at a query and, unless causal, the one that starts there.

    Attributes:
        window: n, including the query's own position.
        causal: Whether positions after the query are left out.
    """

    window: int
    causal: bool

    @property
    def before(self) -> int:
        """Positions before the query."""
        return self.window - 1

    @property
    def after(self) -> int:
        """Positions after the query."""
        return 0 if self.causal else self.window - 1

    @property
    def width(self) -> int:
        """All positions: n if causal, else 2 n - 1."""
        return self.before + 1 + self.after

    def windows(
        self, x: Float[Tensor, "*batch position dim"], queries: int
    ) -> Float[Tensor, "*batch query offset dim"]:
        """The states around each of the last queries, zeros past the ends; a view."""
        return self._pad_ends(x, queries).unfold(-2, self.width, 1).mT

    def products(
        self, q: Float[Tensor, "*batch query dim"], k: Float[Tensor, "*batch key dim"]
    ) -> Float[Tensor, "*batch query offset"]:
        """Products of each of the last queries with the keys of its band."""
        queries, size = q.shape[-2], self._block_size(q.shape[-2])
        blocks = _cut_blocks(q, size)
        dense = torch.matmul(blocks, self._unfold_keys(k, queries, size))
        return self._take_diagonals(dense).flatten(-3, -2)[..., :queries, :]

    def sums(
        self, weights: Float[Tensor, "*batch query offset"], v: Float[Tensor, "*batch key dim"]
    ) -> Float[Tensor, "*batch query dim"]:
        """Weighted sums of the values in each query's band."""
        queries, size = weights.shape[-2], self._block_size(weights.shape[-2])
        dense = self._skew_rows(_cut_blocks(weights, size))
        sums = torch.matmul(dense, self._unfold_keys(v, queries, size).mT)
        return sums.flatten(-3, -2)[..., :queries, :]

    def from_dense(
        self, x: Float[Tensor, "*batch query key"], start: int = 0
    ) -> Float[Tensor, "*batch query offset"]:
        """Converts ``query key`` to the band's layout, zeros past the ends."""
        return self._take_diagonals(F.pad(x, (self.before - start, self.after)))

    def to_dense(
        self, x: Float[Tensor, "*batch query offset"], start: int = 0, fill: float = 0.0
    ) -> Float[Tensor, "*batch query key"]:
        """Converts the band's layout to ``query key``, filled with a constant outside the band."""
        return F.pad(self._skew_rows(x, fill), (start - self.before, -self.after), value=fill)

    def to_band(
        self, x: Float[Tensor, "*batch query offset"], target: Band
    ) -> Float[Tensor, "*batch query offset2"]:
        """Converts this band's layout to that of another band, zeros where this one has no pair."""
        return F.pad(x, (target.before - self.before, target.after - self.after))

    def mask(self, attention_mask: AttentionMask) -> BandMask:
        """Makes the mask of the band's pairs."""
        queries = attention_mask.latent_queries.shape[-1]
        valid = attention_mask.valid
        if valid is None:
            valid = attention_mask.latent_queries.new_ones(attention_mask.start + queries)
        padded = F.pad(valid, (self.before, self.after))[..., attention_mask.start :]
        attn_mask = padded.unfold(-1, self.width, 1).expand(
            *attention_mask.latent_queries.shape, self.width
        )
        mask = PairMask.build(attn_mask, attention_mask.latent_queries, attention_mask.dtype)
        return BandMask(mask.bias, mask.latent, mask.pairs, self, attention_mask.start)

    def _block_size(self, queries: int) -> int:
        return min(queries, max(self.width, BLOCK))

    def _pad_ends(self, x: Tensor, queries: int, extra: int = 0) -> Tensor:
        """Pads zeros before the first and after the last position of the band."""
        past = x.shape[-2] - queries
        return F.pad(x, (0, 0, self.before - past, self.after + extra))

    def _unfold_keys(
        self, x: Tensor, queries: int, size: int
    ) -> Float[Tensor, "*batch block dim key"]:
        """The states near each block of queries; a view."""
        padded = self._pad_ends(x, queries, -queries % size)
        return padded.unfold(-2, size + self.width - 1, size)

    def _take_diagonals(
        self, dense: Float[Tensor, "*batch query key"]
    ) -> Float[Tensor, "*batch query offset"]:
        """Takes row t from column t on: with rows one element longer, diagonals become columns."""
        rows, columns = dense.shape[-2:]
        flat = F.pad(dense.flatten(-2), (0, rows))
        return flat.unflatten(-1, (rows, columns + 1))[..., : self.width]

    def _skew_rows(
        self, x: Float[Tensor, "*batch query offset"], fill: float = 0.0
    ) -> Float[Tensor, "*batch query key"]:
        """The inverse of ``_take_diagonals``: shifts row t to column t."""
        rows = x.shape[-2]
        columns = rows + self.width - 1
        flat = F.pad(x, (0, rows), value=fill).flatten(-2)
        return flat[..., : rows * columns].unflatten(-1, (rows, columns))


def _cut_blocks(x: Tensor, size: int) -> Float[Tensor, "*batch block query dim"]:
    return F.pad(x, (0, 0, 0, -x.shape[-2] % size)).unflatten(-2, (-1, size))


@dataclass(frozen=True, slots=True)
class BandMask(PairMask):
    """The mask of the pairs of a band.

    Attributes:
        band: The band.
        start: Position of the first query.
    """

    band: Band
    start: int

    def to_dense(self, logits: Tensor) -> tuple[Tensor, PairMask]:
        """Logits and mask with a column for every key: 0 and masked outside the band."""
        bias = self.band.to_dense(self.bias, self.start, -torch.inf)
        latent = self.band.to_dense(self.latent, self.start)
        return self.band.to_dense(logits, self.start), PairMask(bias, latent, self.pairs)
