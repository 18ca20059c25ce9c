r"""Alignment blocks: heads above a decoder that point at one position each.

Head :math:`k` scores the positions by its queries and keys, and adds the word vector
:math:`u^k_s = U_k \mathrm{LN}(e_s)` of the one that it points at to the state:

.. math:: p(z_t = s) \propto \exp(q_k(h_t) \cdot k_k(e_s) / \sqrt{d_a}), \qquad
          p(y_t \mid z) = \mathrm{softmax}\bigl(E (h_t + \textstyle\sum_k u^k_{z^k})\bigr)[y_t].

:math:`U_k` is zero at the start, and the likelihood that of the plain network.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from latentheads.alignment.chain import ChainParameters
from latentheads.alignment.distribution import NOWHERE, CategoricalParameters, Pair
from latentheads.layers.numeric import dropout, full_precision
from latentheads.names import Block

__all__ = ["AlignmentBlock", "Jumps", "JumpsBehindNull", "point"]


def point(
    query: Float[Tensor, "*batch target head dim"],
    key: Float[Tensor, "*keys key head dim"],
    readable: Bool[Tensor, "*mask #target key"],
) -> Float[Tensor, "*out target head key"]:
    """Scaled products, ``NOWHERE`` where a head may not point; float32 or wider."""
    products = query.transpose(-3, -2) @ key.movedim(-3, -1)
    scores = full_precision(products).transpose(-3, -2) / math.sqrt(query.shape[-1])
    return scores.masked_fill(~readable.unsqueeze(-2), NOWHERE)


class Jumps(nn.Module):
    """A learned score for each jump from one position to another; zero at the start.

    Args:
        reach: The largest jump with a score of its own; longer ones share that.
    """

    def __init__(self, reach: int) -> None:
        super().__init__()
        self.reach = reach
        self.value = nn.Parameter(torch.zeros(2 * reach + 1))

    def forward(self, keys: int) -> Float[Tensor, "before key"]:
        """The score of every pair of positions."""
        place = torch.arange(keys, device=self.value.device)
        jump = (place - place[:, None]).clamp(-self.reach, self.reach)
        return full_precision(self.value)[jump + self.reach]


class JumpsBehindNull(Jumps):
    """Scores of jumps where the first key is null, which is no position and has no jumps.

    Staying at null has a number, and going there from a position another; what leads away from
    null is alike for all positions, and needs none.

    Args:
        reach: The largest jump with a number of its own.
    """

    def __init__(self, reach: int) -> None:
        super().__init__(reach)
        self.null = nn.Parameter(torch.zeros(2))

    def forward(self, keys: int) -> Float[Tensor, "before key"]:
        """One number for every pair of keys, null the first."""
        stay, go = full_precision(self.null)
        to_null = torch.cat([stay[None], go.expand(keys - 1)])
        away = F.pad(super().forward(keys - 1), (0, 0, 1, 0))
        return torch.cat([to_null[:, None], away], 1)


class AlignmentBlock(nn.Module):
    """The prior of one block's alignments, and the word vectors of its heads.

    Args:
        block: Its address; its heads are all independent given those below.
        first: Heads in the blocks below.
        width: Model width.
        size: Width of queries and keys.
        prior: independent, cascaded, chain or soft.
        reach: The largest jump with a number of its own.
        probability: Dropout of what word vectors are made of.
        null: Whether the first key is null, and no position.
    """

    def __init__(
        self,
        block: Block,
        first: int,
        width: int,
        size: int,
        prior: str,
        reach: int,
        probability: float = 0.0,
        null: bool = False,
    ) -> None:
        super().__init__()
        self.block, self.first, self.size, self.prior = block, first, size, prior
        self.width, self.probability = width, probability
        self.norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, block.heads * size)
        self.key = nn.Linear(width, block.heads * size)
        self.lexicon = nn.Linear(width, block.heads * width, bias=False)
        nn.init.zeros_(self.lexicon.weight)
        self.jumps = nn.ModuleDict()
        jumps = JumpsBehindNull if null else Jumps
        self.contents = nn.ParameterDict()
        if prior == "chain":
            self.jumps["before"] = jumps(reach)
        for head, lower in self.pairs if prior == "cascaded" else ():
            self.jumps[f"{head}_{lower}"] = jumps(reach)
            self.contents[f"{head}_{lower}"] = nn.Parameter(torch.zeros(size, size))

    @property
    def pairs(self) -> list[Pair]:
        """Every head of the block with every head below it."""
        heads = range(self.first, self.first + self.block.heads)
        return [(head, lower) for head in heads for lower in range(self.first)]

    def keys(
        self, memory: Float[Tensor, "*batch key dim"]
    ) -> Float[Tensor, "*batch key head size"]:
        """The keys of every head."""
        return self.key(self.norm(memory)).unflatten(-1, (self.block.heads, self.size))

    def pointing(
        self,
        states: Float[Tensor, "*batch target dim"],
        keys: Float[Tensor, "*keys key head size"],
        readable: Bool[Tensor, "*mask #target key"],
        below: list[Float[Tensor, "*keys key size"]],
    ) -> CategoricalParameters:
        """The prior of the block.

        Args:
            states: What predicts each word.
            keys: As :meth:`keys` gives them.
            readable: True where a head may point.
            below: The keys of every head in the blocks below.
        """
        query = self.query(states).unflatten(-1, (self.block.heads, self.size))
        scores = point(query, keys, readable)
        if self.prior == "chain":
            return ChainParameters(scores, steps=self.jumps["before"](keys.shape[-3]).unsqueeze(0))
        if self.prior != "cascaded":
            return CategoricalParameters(scores, first=self.first)
        return CategoricalParameters(scores, self._read_below(keys, below), self.first)

    def _read_below(self, keys: Tensor, below: list[Tensor]) -> dict[Pair, Tensor]:
        """Scores of each head given those below it: by the jump, and by the keys of both."""
        found = {}
        for head, lower in self.pairs:
            name = f"{head}_{lower}"
            own = keys[..., head - self.first, :]
            products = (below[lower] @ self.contents[name]) @ own.mT
            content = full_precision(products) / math.sqrt(self.size)
            found[head, lower] = (content + self.jumps[name](keys.shape[-3])).unsqueeze(-3)
        return found

    def vectors(
        self, memory: Float[Tensor, "*batch key dim"]
    ) -> list[Float[Tensor, "*batch key dim"]]:
        """The vector that every position adds to a state, for each head."""
        kept = dropout(self.norm(memory), self.probability, self.training)
        words = self.lexicon(kept).unflatten(-1, (self.block.heads, self.width))
        return list(words.unbind(-2))
