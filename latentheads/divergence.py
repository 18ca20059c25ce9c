r"""How far apart the heads of a block are: Jensen-Shannon divergence between their weights.

For heads i, j and every query t, with :math:`m = (a_{it} + a_{jt})/2`,

.. math:: \mathrm{JSD} = \tfrac12 \mathrm{KL}(a_{it} \| m) + \tfrac12 \mathrm{KL}(a_{jt} \| m)

The paper sums over queries and averages over sentences, so that its figures grow with length; the
mean over queries stands beside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from pyro import poutine
from torch import Tensor

from latentheads.batch import Batch
from latentheads.bound import traces
from latentheads.distributions import HeadLogits
from latentheads.evaluation import evaluating, fixed_noise
from latentheads.handlers import PlugIn, unseen
from latentheads.names import chain_of, latent_of

__all__ = ["Divergence", "divergence", "head_divergence", "head_weights"]

MOST = 2**25
"""Numbers of a tensor over head pairs, queries and keys: a long sentence is read in stretches."""


def head_weights(site: dict[str, Any]) -> Float[Tensor, "*batch head query key"]:
    """Attention weights of a block from its traced sample site."""
    return torch.softmax(site["value"] + site["fn"].context.mask.bias, -1)


def head_divergence(
    weights: Float[Tensor, "*batch head query key"], queries: Bool[Tensor, "*batch query"]
) -> Float[Tensor, "*batch head head"]:
    """JSD between all pairs of heads, summed over the real queries, in nats."""
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
            The mean, or None of no pair.
        """
        sites = [site for site in self.summed if chain in (None, chain_of(site))]
        pairs = [_upper(self.summed[site]) for site in sites if len(self.summed[site]) > 1]
        return float(torch.cat(pairs).mean()) if pairs else None


def _upper(matrix: Tensor) -> Tensor:
    rows, columns = torch.triu_indices(len(matrix), len(matrix), offset=1)
    return matrix[rows, columns]


def divergence(model: Any, parts: Iterable[Batch], guide: Any = None, seed: int = 0) -> Divergence:
    """Measures the heads of a model on every batch.

    Args:
        model: The model.
        parts: Batches, each sentence once.
        guide: Draws the heads from this guide; without one they stand at their prior's location,
            as in the paper's figures. Noise of its own sets heads apart.
        seed: Of the guide's noise.
    """
    device = next(model.parameters()).device
    totals: dict[str, Tensor] = {}
    queries: dict[str, Tensor] = {}
    sentences = 0
    with evaluating(model), fixed_noise(seed, device), unseen():
        for batch in parts:
            here = batch.to(device)
            sentences += len(here)
            for site, node in _traced(model, guide, here).items():
                drawn = node["type"] == "sample" and isinstance(node["fn"], HeadLogits)
                if drawn and latent_of(site) == "logits" and node["value"].shape[-3] > 1:
                    real = here.source_valid if site.startswith("encoder") else here.target_valid
                    summed = head_divergence(head_weights(node), real).double().sum(0).cpu()
                    totals[site] = totals.get(site, 0) + summed
                    queries[site] = queries.get(site, 0) + real.sum().cpu()
    return Divergence(
        {site: total / sentences for site, total in totals.items()},
        {site: total / queries[site] for site, total in totals.items()},
    )


def _traced(model: Any, guide: Any, batch: Batch) -> dict[str, Any]:
    if guide is not None:
        return traces(model, guide, batch)[0].nodes
    with poutine.trace() as plain, PlugIn():
        model.states(batch)
    return plain.trace.nodes
