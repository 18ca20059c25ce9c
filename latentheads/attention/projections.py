"""The deterministic parts of multi-head attention: projections, scores, weighted sum.

Vaswani et al. 2017, https://arxiv.org/abs/1706.03762.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from latentheads.attention.band import Band
from latentheads.attention.block import gather_selected
from latentheads.latents.network import Choice
from latentheads.layers.numeric import (
    dropout,
    full_precision,
    has_overrides,
    softmax,
    weighted_sum,
)
from latentheads.mask import PairMask


class MultiHeadAttention(nn.Module):
    """The deterministic parts of ``torch.nn.MultiheadAttention``, with the same weights.

    Attributes:
        band: The pairs of scores and weights, for local attention; None: all.

    Args:
        width: Model width d.
        heads: Number of heads H; it must divide the width.
        dropout: Dropout of the attention weights.
        size: Width of a head; None: width / H.
        candidates: Heads with weights of their own, of which H are selected; None: H.
    """

    active: Tensor | None

    def __init__(
        self,
        width: int,
        heads: int,
        dropout: float = 0.0,
        size: int | None = None,
        candidates: int | None = None,
    ) -> None:
        super().__init__()
        self.band: Band | None = None
        if size is None and (heads < 1 or width % heads):
            raise ValueError(f"heads must divide the width {width}, got {heads}")
        self.heads = heads
        self.size = width // heads if size is None else size
        self.candidates = heads if candidates is None else candidates
        self.dropout = dropout
        inner = self.candidates * self.size
        self.in_weight = nn.Parameter(torch.empty(3 * inner, width))
        self.in_bias = nn.Parameter(torch.zeros(3 * inner))
        self.out = nn.Linear(heads * self.size, width)
        nn.init.xavier_uniform_(self.in_weight)
        nn.init.xavier_uniform_(self.out.weight)
        nn.init.zeros_(self.out.bias)
        self.register_buffer("active", None)

    @torch.no_grad()
    def prune(self, computed: Sequence[int], active: Sequence[int]) -> None:
        """Removes the weights of all other heads.

        Args:
            computed: Indices of the heads whose queries and keys stay: their logits are used.
            active: Those of them whose values and output weights stay too.
        """
        value_heads = list(range(self.heads)) if self.active is None else self.active.tolist()
        # the rows of in_weight: queries and keys of all heads, values of those that are read
        rows = torch.arange(len(self.in_weight), device=self.in_weight.device)
        q, k, v = rows.view(-1, self.size).split([self.heads, self.heads, len(value_heads)])
        kept_values = [value_heads.index(head) for head in active]
        rows = torch.cat([q[computed], k[computed], v[kept_values]]).flatten()
        # the columns of the output projection are the rows of values, counted from 0
        columns = (v[kept_values] - 2 * self.heads * self.size).flatten()
        self.in_weight = nn.Parameter(self.in_weight[rows])
        self.in_bias = nn.Parameter(self.in_bias[rows])
        self.out.weight = nn.Parameter(self.out.weight[:, columns])
        self.out.in_features = len(columns)
        self.heads = self.candidates = len(computed)
        active_index = rows.new_tensor([list(computed).index(head) for head in active])
        self.active = None if len(active_index) == self.heads else active_index

    def project(
        self,
        query: Float[Tensor, "*batch query dim"],
        memory: Tensor | None,
        choice: Choice | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Projects to queries, keys and values, each ``batch head position dim``.

        Without a memory (self-attention) one product computes all three.
        """
        weight, bias = self._choose_weights(choice)
        queries, *others = self._split_rows(len(bias))
        if memory is None:
            projected = F.linear(query, weight, bias).split([queries, *others], -1)
        else:
            rows = [queries, sum(others)]
            query_weight, memory_weight = weight.split(rows)
            query_bias, memory_bias = bias.split(rows)
            read = F.linear(memory, memory_weight, memory_bias).split(others, -1)
            projected = (F.linear(query, query_weight, query_bias), *read)
        q, k, v = [self._split_heads(x, choice) for x in projected]
        return q, k, v

    def project_query(self, query: Tensor, choice: Choice | None = None) -> Tensor:
        """Projects only queries."""
        weight, bias = self._choose_weights(choice)
        end = self._split_rows(len(bias))[0]
        return self._split_heads(F.linear(query, weight[:end], bias[:end]), choice)

    def project_memory(self, memory: Tensor, choice: Choice | None = None) -> tuple[Tensor, Tensor]:
        """Projects only keys and values."""
        weight, bias = self._choose_weights(choice)
        start, *parts = self._split_rows(len(bias))
        k, v = F.linear(memory, weight[start:], bias[start:]).split(parts, -1)
        return self._split_heads(k, choice), self._split_heads(v, choice)

    def _split_rows(self, rows: int) -> list[int]:
        """Number of rows of queries, of keys and of values."""
        values = rows // 3 if self.active is None else len(self.active) * self.size
        return [(rows - values) // 2, (rows - values) // 2, values]

    def _choose_weights(self, choice: Choice | None) -> tuple[Tensor, Tensor]:
        """Weights and biases of all heads, or of the selected ones if all sentences share them."""
        if choice is None or choice.index is None or not choice.common:
            return self.in_weight, self.in_bias
        parts = (3, self.candidates, self.size)
        weight = self.in_weight.unflatten(0, parts).index_select(1, choice.index)
        bias = self.in_bias.unflatten(0, parts).index_select(1, choice.index)
        return weight.flatten(0, 2), bias.flatten()

    def _split_heads(self, x: Tensor, choice: Choice | None) -> Tensor:
        """Splits off the head dimension, and gathers each sentence's selected heads."""
        # a view, since Tensor.unflatten is a Python function, which takes longer
        heads = x.view(*x.shape[:-1], x.shape[-1] // self.size, self.size).transpose(-2, -3)
        return heads if choice is None else gather_selected(heads, choice)

    def scores(
        self,
        q: Float[Tensor, "*batch head query dim"],
        k: Float[Tensor, "*keys head position dim"],
    ) -> Float[Tensor, "*out head query key"]:
        """``Q K^T / sqrt(d_head)``, in float32 or wider."""
        q = q * q.shape[-1] ** -0.5
        if self.band is not None:
            return full_precision(self.band.products(q, k))
        return full_precision(torch.matmul(q, k.transpose(-1, -2)))

    def select_active(self, x: Tensor) -> Tensor:
        """Selects the heads that the output projection uses."""
        return x if self.active is None else x.index_select(-3, self.active)

    def attend(
        self,
        logits: Float[Tensor, "*batch head query key"],
        v: Float[Tensor, "*values head position dim"],
        mask: PairMask,
        choice: Choice | None = None,
    ) -> Float[Tensor, "*out query width"]:
        """Computes softmax, weighted sum of values, the factors of a choice, output projection."""
        weights = softmax(logits + mask.bias)
        return self._join(self.sum_values(weights, v), choice)

    def can_fuse(self, q: Tensor, k: Tensor, v: Tensor) -> bool:
        """Whether :meth:`attend_fused` can stand for scores and :meth:`attend`.

        On a CPU the dropout of PyTorch's fused attention is slower than all that is saved, and in
        half precision its gradient takes four times as long. What overrides functions of PyTorch,
        as relevance does, has its own rules for each step.
        """
        drops, is_half = self.training and self.dropout > 0, q.dtype.itemsize < 4
        is_slow = q.device.type == "cpu" and (drops or is_half)
        is_plain = self.band is None and self.active is None and q.ndim == k.ndim == 4
        return is_plain and not is_slow and not has_overrides(q, k, v)

    def attend_fused(
        self,
        q: Float[Tensor, "batch head query dim"],
        k: Float[Tensor, "batch head key dim"],
        v: Float[Tensor, "batch head key dim"],
        mask: PairMask,
        choice: Choice | None = None,
    ) -> Float[Tensor, "*out query width"]:
        """Attends to the scores themselves; neither they nor the weights are ever in memory."""
        bias = None if mask.is_causal else mask.bias.to(q.dtype)
        drop = self.dropout if self.training else 0.0
        heads = F.scaled_dot_product_attention(q, k, v, bias, drop, is_causal=mask.is_causal)
        return self._join(heads, choice)

    def _join(
        self, heads: Float[Tensor, "*batch head query dim"], choice: Choice | None
    ) -> Float[Tensor, "*out query width"]:
        """Applies the factors of a choice, and the output projection."""
        if choice is not None:
            heads = self._apply_choice(heads, choice)
        return self.out(heads.transpose(-2, -3).flatten(-2))

    def sum_values(
        self,
        weights: Float[Tensor, "*batch head query key"],
        v: Float[Tensor, "*values head position dim"],
    ) -> Float[Tensor, "*out head query dim"]:
        """The weighted sum of the values, after dropout of the weights."""
        if self.band is not None:
            return self.band.sums(dropout(weights, self.dropout, self.training).to(v.dtype), v)
        return weighted_sum(weights, v, self.dropout, self.training)

    def _apply_choice(self, heads: Tensor, choice: Choice) -> Tensor:
        """Multiplies the selected heads by their weights; unselected heads output 0."""
        # a selection that fills all slots has weights of exactly one: the product is needed only
        # for the gradient of a relaxation
        if choice.index is None or choice.active_only or choice.weight.requires_grad:
            heads = heads * choice.weight[..., None, None].to(heads.dtype)
        return self.scatter_active(heads, choice)

    def scatter_active(self, heads: Tensor, choice: Choice | None) -> Tensor:
        """Restores the head dimension, with zeros, where only active heads were computed."""
        if choice is None or not choice.active_only or choice.index is None:
            return heads
        padded = heads.new_zeros(*heads.shape[:-3], self.heads, *heads.shape[-2:])
        return padded.index_copy(-3, choice.index, heads)
