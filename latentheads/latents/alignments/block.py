r"""Alignment blocks: heads above a decoder that point at one position each.

Head :math:`k` scores positions by queries and keys. It adds the vector
:math:`u^k_s = U_k \mathrm{LN}(e_s)` of the position that it points at to the state:

.. math:: p(z_t = s) \propto \exp(q_k(h_t) \cdot k_k(e_s) / \sqrt{d_a}), \qquad
          p(y_t \mid z) = \mathrm{softmax}\bigl(E (h_t + \textstyle\sum_k u^k_{z^k})\bigr)[y_t].

:math:`U_k` is initialised to zero, so that the likelihood starts as that of the network alone.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from latentheads.latents.alignments.chain import ChainParameters
from latentheads.latents.alignments.distribution import NOWHERE, CategoricalParameters, Pair
from latentheads.layers.numeric import dropout, full_precision
from latentheads.names import Block


def scaled_products(
    query: Float[Tensor, "*batch target head dim"], key: Float[Tensor, "*keys key head dim"]
) -> Float[Tensor, "*out target head key"]:
    """Scaled dot products of each head, in float32 or wider."""
    products = query.transpose(-3, -2) @ key.movedim(-3, -1)
    return full_precision(products).transpose(-3, -2) / math.sqrt(query.shape[-1])


def alignment_scores(
    query: Float[Tensor, "*batch target head dim"],
    key: Float[Tensor, "*keys key head dim"],
    attn_mask: Bool[Tensor, "*mask #target key"],
) -> Float[Tensor, "*out target head key"]:
    """Scaled dot products, ``NOWHERE`` where masked."""
    return scaled_products(query, key).masked_fill(~attn_mask.unsqueeze(-2), NOWHERE)


class Jumps(nn.Module):
    """A learned score for each jump from one position to another; initialised to zero.

    Args:
        max_jump: The largest jump with a score of its own; longer ones share it.
    """

    def __init__(self, max_jump: int) -> None:
        super().__init__()
        self.reach = max_jump
        self.value = nn.Parameter(torch.zeros(2 * max_jump + 1))

    def forward(self, keys: int) -> Float[Tensor, "before key"]:
        """The score of every pair of positions."""
        positions = torch.arange(keys, device=self.value.device)
        jump = (positions - positions[:, None]).clamp(-self.reach, self.reach)
        return full_precision(self.value)[jump + self.reach]


class JumpsAfterNull(Jumps):
    """Scores of jumps where the first key is null, which is not a position.

    There is one score for staying at null and one for going there from a position. Leaving null is
    equally likely for all positions, and needs no score.

    Args:
        max_jump: The largest jump with a score of its own.
    """

    def __init__(self, max_jump: int) -> None:
        super().__init__(max_jump)
        self.null = nn.Parameter(torch.zeros(2))

    def forward(self, keys: int) -> Float[Tensor, "before key"]:
        """The score of every pair of keys; the first is null."""
        stay, enter = full_precision(self.null)
        to_null = torch.cat([stay[None], enter.expand(keys - 1)])
        others = F.pad(super().forward(keys - 1), (0, 0, 1, 0))
        return torch.cat([to_null[:, None], others], 1)


class AlignmentBlock(nn.Module):
    """The prior of one block's alignments, and the vectors that its heads add to states.

    Args:
        block: Its address; its heads are independent given the lower blocks.
        first_head: Number of heads in lower blocks.
        width: Model width.
        size: Width of queries and keys.
        prior: independent, cascaded, chain or soft.
        max_jump: The largest jump with a score of its own.
        dropout: Dropout of the inputs of the vectors.
        null: Whether the first key is null.
    """

    def __init__(
        self,
        block: Block,
        first_head: int,
        width: int,
        size: int,
        prior: str,
        max_jump: int,
        dropout: float = 0.0,
        null: bool = False,
    ) -> None:
        super().__init__()
        self.block, self.first_head, self.size, self.prior = block, first_head, size, prior
        self.width, self.probability = width, dropout
        self.norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, block.heads * size)
        self.key = nn.Linear(width, block.heads * size)
        self.lexicon = nn.Linear(width, block.heads * width, bias=False)
        nn.init.zeros_(self.lexicon.weight)
        self.jumps = nn.ModuleDict()
        jumps_class = JumpsAfterNull if null else Jumps
        self.contents = nn.ParameterDict()
        if prior == "chain":
            self.jumps["before"] = jumps_class(max_jump)
        for head, lower in self.pairs if prior == "cascaded" else ():
            self.jumps[f"{head}_{lower}"] = jumps_class(max_jump)
            self.contents[f"{head}_{lower}"] = nn.Parameter(torch.zeros(size, size))

    @property
    def pairs(self) -> list[Pair]:
        """Every head of the block with every head of lower blocks."""
        heads = range(self.first_head, self.first_head + self.block.heads)
        return [(head, lower) for head in heads for lower in range(self.first_head)]

    def keys(
        self, memory: Float[Tensor, "*batch key dim"]
    ) -> Float[Tensor, "*batch key head size"]:
        """Keys of every head."""
        return self.key(self.norm(memory)).unflatten(-1, (self.block.heads, self.size))

    def prior_parameters(
        self,
        states: Float[Tensor, "*batch target dim"],
        keys: Float[Tensor, "*keys key head size"],
        attn_mask: Bool[Tensor, "*mask #target key"],
        below: list[Float[Tensor, "*keys key size"]],
    ) -> CategoricalParameters:
        """Compute the parameters of the block's prior.

        Args:
            states: The decoder states that predict the words.
            keys: The output of :meth:`keys`.
            attn_mask: True where a head may point.
            below: The keys of every head of lower blocks.
        """
        query = self.query(states).unflatten(-1, (self.block.heads, self.size))
        scores = alignment_scores(query, keys, attn_mask)
        if self.prior == "chain":
            return ChainParameters(
                scores, transition_scores=self.jumps["before"](keys.shape[-3]).unsqueeze(0)
            )
        if self.prior != "cascaded":
            return CategoricalParameters(scores, first_head=self.first_head)
        return CategoricalParameters(scores, self._pair_scores(keys, below), self.first_head)

    def _pair_scores(self, keys: Tensor, below: list[Tensor]) -> dict[Pair, Tensor]:
        """Scores of each pair of a head and a lower one: by the jump, and by the keys of both."""
        scores = {}
        for head, lower in self.pairs:
            name = f"{head}_{lower}"
            keys_of_head = keys[..., head - self.first_head, :]
            products = (below[lower] @ self.contents[name]) @ keys_of_head.mT
            content = full_precision(products) / math.sqrt(self.size)
            scores[head, lower] = (content + self.jumps[name](keys.shape[-3])).unsqueeze(-3)
        return scores

    def vectors(
        self, memory: Float[Tensor, "*batch key dim"]
    ) -> list[Float[Tensor, "*batch key dim"]]:
        """The vector that each position adds to a state, for each head."""
        states = dropout(self.norm(memory), self.probability, self.training)
        vectors = self.lexicon(states).unflatten(-1, (self.block.heads, self.width))
        return list(vectors.unbind(-2))
