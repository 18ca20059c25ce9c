r"""How far apart the heads of a block are: Jensen-Shannon divergence between their weights.

For heads i, j and every query t, with :math:`m = (a_{it} + a_{jt})/2`,

.. math:: \mathrm{JSD} = \tfrac12 \mathrm{KL}(a_{it} \| m) + \tfrac12 \mathrm{KL}(a_{jt} \| m)

The paper sums over queries and averages over sentences, so that its figures grow with length; the
mean over queries stands beside it. Sentences in which one of the two heads is silent do not count;
of heads that never speak together both are NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from latentheads.analysis.means import Means, pairs
from latentheads.analysis.record import readings
from latentheads.analysis.sides import sides
from latentheads.attention.block import HeadBlock
from latentheads.batch import Batch
from latentheads.corpora import Part
from latentheads.guide import ModelGuide
from latentheads.model import HeadModel
from latentheads.names import attention_type_of

__all__ = ["PAIRED", "Divergence", "divergence", "head_divergence", "pair_mean"]

PAIRED = 512
"""Tokens of a batch whose heads are compared: memory grows with the square of the heads."""

MOST = 2**25
"""Numbers of a tensor over head pairs, queries and keys: a long sentence is read in stretches."""


def head_divergence(
    weights: Float[Tensor, "*batch head query key"], queries: Bool[Tensor, "*batch query"]
) -> Float[Tensor, "*batch head head"]:
    """JSD between all pairs of heads, summed over the real queries, in nats.

    Args:
        weights: What every head reads from each key, for each query.
        queries: True at the real ones.
    """
    of_query = weights[..., :1, :].numel() * weights.shape[-3]
    together = max(1, MOST // max(1, of_query))
    parts = zip(weights.split(together, -2), queries.split(together, -1), strict=True)
    return torch.stack([_summed(*part) for part in parts]).sum(0)


def _summed(weights: Tensor, queries: Tensor) -> Float[Tensor, "*batch head head"]:
    """JSD of some queries."""
    p, q = weights.unsqueeze(-3), weights.unsqueeze(-4)
    middle = (p + q) / 2
    entropy = -torch.special.xlogy(weights, weights).sum(-1)
    mixed = -torch.special.xlogy(middle, middle).sum(-1)
    pairs = mixed - (entropy.unsqueeze(-2) + entropy.unsqueeze(-3)) / 2
    return (pairs.clamp_min(0) * queries[..., None, None, :]).sum(-1)


@dataclass(frozen=True)
class Divergence:
    """Pairwise divergence of the heads of every block.

    Attributes:
        summed: By block site: summed over queries, averaged over sentences, as the paper does.
        normalised: By block site: averaged over queries.
    """

    summed: dict[str, Float[Tensor, "head head"]]
    normalised: dict[str, Float[Tensor, "head head"]]

    def average(self, chain: str | None = None) -> float | None:
        """The paper's one number: the mean of ``summed`` over the head pairs i < j of all blocks.

        Args:
            chain: Of this chain's blocks alone.

        Returns:
            The mean over pairs that speak, or None of no pair.
        """
        return pair_mean(
            *(m for site, m in self.summed.items() if chain in (None, attention_type_of(site)))
        )


def pair_mean(*matrices: Float[Tensor, "_ _"]) -> float | None:
    """The mean over all pairs of heads that speak, of all blocks alike; None of no pair."""
    pairs = (each[*torch.triu_indices(len(each), len(each), offset=1)] for each in matrices)
    mean = float(torch.cat([torch.zeros(0), *pairs]).nanmean())
    return None if math.isnan(mean) else mean


def divergence(
    model: HeadModel,
    parts: Part | Iterable[Batch],
    guide: ModelGuide | None = None,
    seed: int = 0,
    latent: bool = True,
) -> Divergence:
    """Measures the heads of a model on every batch.

    Args:
        model: The model.
        parts: A part of a corpus, or batches, each sentence once.
        guide: Draws the heads from this guide; without one they stand at their prior's location,
            as in the paper's figures. Noise of its own sets heads apart.
        seed: Of the guide's noise.
        latent: Only of blocks whose logits are drawn; else of all that attend.
    """
    modules = [module for module in model.modules() if isinstance(module, HeadBlock)]
    attending = [module for module in modules if module.attends]
    chosen = {m.block.name for m in attending if m.prior is not None or not latent}
    summed, normalised = Means(), Means()
    for batch, heads in readings(model, parts, guide, seed):
        for block in heads.attending:
            if block.name in chosen:
                found, real = heads[block.name], sides(batch, block.chain).real_queries
                apart, both = head_divergence(found.weights, real), pairs(found.speaks)
                summed.add(block.site(), apart, both)
                normalised.add(block.site(), apart, both, real.sum(-1))
    return Divergence(summed.result(), normalised.result())
