"""Multi-head attention, cut where the heads become random: scores, drawn logits, read-out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyro
import torch
from jaxtyping import Float, Int
from pyro.distributions import Distribution
from torch import Tensor, nn
from torch.nn import functional as F

from latentheads.distributions import HeadContext
from latentheads.families import Family
from latentheads.mask import Mask
from latentheads.names import Block
from latentheads.numeric import full_precision, weighted_sum

__all__ = ["Cache", "GatePrior", "LatentAttention", "MultiHeadAttention"]

GatePrior = Callable[[HeadContext], Distribution]
"""The second kind of latent: the law of a block's gates, event ``head``."""


Watch = Callable[[Tensor, Tensor, Mask], None]
"""What somebody does with the logits, values and mask of a pass."""


class MultiHeadAttention(nn.Module):
    """The deterministic parts of ``torch.nn.MultiheadAttention``, with the same weights.

    Args:
        width: Model width d.
        heads: Number of heads H; it must divide the width.
        dropout: Dropout of the attention weights.
    """

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        if heads < 1 or width % heads:
            raise ValueError(f"heads must divide the width {width}, got {heads}")
        self.heads = heads
        self.dropout = dropout
        self.in_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_bias = nn.Parameter(torch.zeros(3 * width))
        self.out = nn.Linear(width, width)
        nn.init.xavier_uniform_(self.in_weight)
        nn.init.xavier_uniform_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def project(
        self, query: Float[Tensor, "*batch query dim"], memory: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Projects to queries, keys and values, each ``batch head position dim``.

        Without a memory the queries attend to themselves, and one product gives all three.
        """
        if memory is None:
            q, k, v = F.linear(query, self.in_weight, self.in_bias).chunk(3, -1)
        else:
            weight, wide, bias, wide_bias = self._parts()
            q = F.linear(query, weight, bias)
            k, v = F.linear(memory, wide, wide_bias).chunk(2, -1)
        return self._split(q), self._split(k), self._split(v)

    def project_query(self, query: Tensor) -> Tensor:
        """Projects queries alone."""
        weight, _, bias, _ = self._parts()
        return self._split(F.linear(query, weight, bias))

    def project_memory(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Projects keys and values alone."""
        _, weight, _, bias = self._parts()
        k, v = F.linear(memory, weight, bias).chunk(2, -1)
        return self._split(k), self._split(v)

    def _parts(self) -> tuple[Tensor, ...]:
        """Weights of the query and of the memory, biases of the query and of the memory."""
        width = self.in_weight.shape[1]
        sizes = [width, 2 * width]
        return (*self.in_weight.split(sizes), *self.in_bias.split(sizes))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(-2, -3)

    def scores(
        self,
        q: Float[Tensor, "*batch head query dim"],
        k: Float[Tensor, "*keys head key dim"],
    ) -> Float[Tensor, "*out head query key"]:
        """``Q K^T / sqrt(d_head)``, in float32 or wider."""
        return full_precision(torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-1, -2)))

    def read_out(
        self,
        logits: Float[Tensor, "*batch head query key"],
        v: Float[Tensor, "*values head key dim"],
        mask: Mask,
        gate: Float[Tensor, "*gates head"] | None = None,
    ) -> Float[Tensor, "*out query width"]:
        """Softmax over the readable keys, weighted sum of values, gates, output projection."""
        weights = torch.softmax(logits + mask.bias, -1)
        heads = weighted_sum(weights, v, self.dropout, self.training)
        if gate is not None:
            heads = heads * gate[..., None, None].to(heads.dtype)
        return self.out(heads.transpose(-2, -3).flatten(-2))


@dataclass
class Cache:
    """What a block keeps while decoding token by token: keys, values and gates.

    Attributes:
        keys: Of self-attention ``sentence *hypothesis head key dim``, of a memory without the
            hypotheses: all of a sentence read one memory.
        values: The same.
        gate: The gates of a sentence, which its hypotheses share.
        of_memory: Whether keys and values are those of a memory.
    """

    keys: Tensor | None = None
    values: Tensor | None = None
    gate: Tensor | None = None
    of_memory: bool = False

    def extend(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Appends the keys and values of new positions and returns all of them."""
        if self.keys is not None and self.values is not None:
            keys = torch.cat([self.keys, keys], -2)
            values = torch.cat([self.values, values], -2)
        self.keys, self.values = keys, values
        return keys, values

    def hold(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Keeps the keys and values of a memory, laid out to be read many times."""
        self.keys, self.values, self.of_memory = keys.contiguous(), values.contiguous(), True
        return self.keys, self.values

    def select(
        self,
        sentences: Int[Tensor, " kept"] | None,
        hypotheses: Int[Tensor, "kept hypothesis"] | None = None,
    ) -> None:
        """Keeps, repeats or reorders sentences, and the hypotheses of each.

        Args:
            sentences: The sentences to keep; None for all as they are.
            hypotheses: For each sentence kept, those of its hypotheses to go on with; None for
                all as they are.
        """
        if self.gate is not None and sentences is not None:
            self.gate = self.gate.index_select(0, sentences)
        if self.keys is None or self.values is None:
            return
        if hypotheses is not None and not self.of_memory:
            rows = _flat(sentences, hypotheses, self.keys.shape[1])
            self.keys, self.values = (_pick(held, rows) for held in (self.keys, self.values))
        elif sentences is not None:
            self.keys = self.keys.index_select(0, sentences)
            self.values = self.values.index_select(0, sentences)


def _flat(sentences: Tensor | None, hypotheses: Tensor, width: int) -> Tensor:
    """Places of hypotheses when those of all sentences stand in one row."""
    if sentences is None:
        sentences = torch.arange(len(hypotheses), device=hypotheses.device)
    return sentences[:, None] * width + hypotheses


def _pick(held: Tensor, rows: Tensor) -> Tensor:
    return held.flatten(0, 1).index_select(0, rows.flatten()).unflatten(0, rows.shape)


class LatentAttention(nn.Module):
    """A block: attention whose heads are drawn at the sample site ``<block>.logits``.

    Attributes:
        watch: Called with the logits, values and mask of every pass, where somebody listens.

    Args:
        block: Its address.
        width: Model width.
        prior: The law of its logits; None makes the block deterministic, without a site.
        gate: The law of its gates at ``<block>.gate``; None makes every head speak.
        dropout: Dropout of the attention weights.
    """

    def __init__(
        self,
        block: Block,
        width: int,
        prior: Family | None,
        gate: GatePrior | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.block = block
        self.attention = MultiHeadAttention(width, block.heads, dropout)
        self.prior = prior
        self.gate = gate
        self.watch: Watch | None = None

    def forward(
        self,
        query: Float[Tensor, "*batch query dim"],
        memory: Float[Tensor, "*memory key dim"] | None,
        mask: Mask,
        below: Float[Tensor, "*below head query key"] | None = None,
        cache: Cache | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Attends, and also returns the logits for the block above.

        Args:
            query: What asks.
            memory: What is read; None for self-attention.
            mask: Validity of the pairs.
            below: The logits drawn one block further down the chain.
            cache: Keys and values of earlier positions; a memory is projected once.
        """
        q, k, v = self._project(query, memory, cache)
        context = HeadContext(self.attention.scores(q, k), below, mask)
        logits = self._draw_logits(context)
        if self.watch is not None:
            self.watch(logits, v, mask)
        gate = self._draw_gate(context, cache)
        return self.attention.read_out(logits, v, mask, gate), logits

    def _draw_logits(self, context: HeadContext) -> Tensor:
        if self.prior is None:
            return context.scores
        return pyro.sample(self.block.site("logits"), self.prior(context))

    def _draw_gate(self, context: HeadContext, cache: Cache | None) -> Tensor | None:
        """Draws the gates of a sentence, once: further tokens keep them."""
        if self.gate is None:
            return None
        if cache is None or cache.gate is None:
            gate = pyro.sample(self.block.site("gate"), self.gate(context))
            if cache is None:
                return gate
            cache.gate = gate
        return cache.gate

    def _project(
        self, query: Tensor, memory: Tensor | None, cache: Cache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        if cache is None:
            return self.attention.project(query, memory)
        if memory is None:
            q, k, v = self.attention.project(query, None)
            return q, *cache.extend(k, v)
        q = self.attention.project_query(query)
        if cache.keys is None or cache.values is None:
            return q, *cache.hold(*self.attention.project_memory(memory))
        return q, cache.keys, cache.values
