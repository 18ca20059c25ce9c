r"""Alignment blocks: heads above a decoder that point at one position each.

Head :math:`k` scores positions by queries and keys. It adds the vector
:math:`u^k_s = U_k \mathrm{LN}(e_s)` of the position that it points at to the state:

.. math:: p(z_t = s) \propto \exp(q_k(h_t) \cdot k_k(\mathrm{LN}(e_s)) / \sqrt{d_a}), \qquad
          p(y_t \mid z) = \mathrm{softmax}\bigl(E (h_t + \textstyle\sum_k u^k_{z^k})\bigr)[y_t].

Here :math:`e_s` is the memory at position s: the encoder's state, or a causal network's own of an
earlier word. :math:`U_k` is initialised to zero, so that the likelihood starts as that of the
network alone.
"""

from __future__ import annotations

import math

from jaxtyping import Bool, Float
from torch import Tensor, nn

from latentheads.latents.alignments.distribution import NOWHERE, CategoricalParameters
from latentheads.latents.alignments.priors import AlignmentPrior
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


class AlignmentBlock(nn.Module):
    """The prior of one block's alignments, and the vectors that its heads add to states.

    Args:
        block: Its address; its heads are independent given the lower blocks.
        first_head: Number of heads in lower blocks.
        width: Model width.
        size: Width of queries and keys.
        prior: The options of the prior.
        dropout: Dropout of the inputs of the vectors.
        null: Whether the first key is null.
    """

    def __init__(
        self,
        block: Block,
        first_head: int,
        width: int,
        size: int,
        prior: AlignmentPrior,
        dropout: float = 0.0,
        null: bool = False,
    ) -> None:
        super().__init__()
        self.block, self.first_head, self.size = block, first_head, size
        self.width, self.probability = width, dropout
        self.norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, block.heads * size)
        self.key = nn.Linear(width, block.heads * size)
        self.lexicon = nn.Linear(width, block.heads * width, bias=False)
        nn.init.zeros_(self.lexicon.weight)
        self.prior = prior.make(range(first_head, first_head + block.heads), size, null)

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

        Raises:
            ValueError: A user-defined prior returns parameters of another block.
        """
        query = self.query(states).unflatten(-1, (self.block.heads, self.size))
        scores = alignment_scores(query, keys, attn_mask)
        parameters: CategoricalParameters = self.prior(scores, keys, below)
        if parameters.first_head != self.first_head:
            raise ValueError(
                f"the prior of {self.block.name}: first_head must be {self.first_head}, the number "
                f"of the block's first head, got {parameters.first_head}"
            )
        return parameters

    def vectors(
        self, memory: Float[Tensor, "*batch key dim"]
    ) -> list[Float[Tensor, "*batch key dim"]]:
        """The vector that each position adds to a state, for each head."""
        states = dropout(self.norm(memory), self.probability, self.training)
        vectors = self.lexicon(states).unflatten(-1, (self.block.heads, self.width))
        return list(vectors.unbind(-2))
