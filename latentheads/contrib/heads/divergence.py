r"""Jensen-Shannon divergence (JSD) between the attention weights of the heads of a block.

For heads i, j and every query t, with :math:`m = (a_{it} + a_{jt})/2`,

.. math:: \mathrm{JSD} = \tfrac12 \mathrm{KL}(a_{it} \| m) + \tfrac12 \mathrm{KL}(a_{jt} \| m)

The paper sums over queries and averages over sentences, so its figures grow with sentence length;
the mean over queries is computed as well. Sentences in which one of the two heads is inactive do
not count; heads that are never active together get NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from latentheads.attention.block import HeadBlock
from latentheads.batch import Batch
from latentheads.contrib.heads.means import Means, active_pairs
from latentheads.contrib.heads.record import record_heads
from latentheads.contrib.heads.tokens import attention_tokens
from latentheads.corpora.part import Part
from latentheads.frames import in_one_line, make_frame
from latentheads.guide import ModelGuide
from latentheads.model import HeadModel
from latentheads.names import attention_type_of

if TYPE_CHECKING:
    import pandas as pd

PAIR_BATCH_TOKENS = 512
"""Tokens per batch when heads are compared: memory grows with the square of the heads."""

MAX_ELEMENTS = 2**25
"""Maximum size of a tensor over head pairs, queries and keys; more queries are split in chunks."""


def head_divergence(
    weights: Float[Tensor, "*batch head query key"], queries: Bool[Tensor, "*batch query"]
) -> Float[Tensor, "*batch head head"]:
    """Computes the JSD between all pairs of heads, summed over valid queries, in nats."""
    elements_per_query = weights[..., :1, :].numel() * weights.shape[-3]
    chunk_size = max(1, MAX_ELEMENTS // max(1, elements_per_query))
    chunks = zip(weights.split(chunk_size, -2), queries.split(chunk_size, -1), strict=True)
    return torch.stack([_sum_divergence(*chunk) for chunk in chunks]).sum(0)


def _sum_divergence(weights: Tensor, queries: Tensor) -> Float[Tensor, "*batch head head"]:
    """Sums the JSD over one chunk of queries, as H(m) - (H(p) + H(q)) / 2."""
    p, q = weights.unsqueeze(-3), weights.unsqueeze(-4)
    mixture = (p + q) / 2
    entropy = -torch.special.xlogy(weights, weights).sum(-1)
    mixture_entropy = -torch.special.xlogy(mixture, mixture).sum(-1)
    divergences = mixture_entropy - (entropy.unsqueeze(-2) + entropy.unsqueeze(-3)) / 2
    return (divergences.clamp_min(0) * queries[..., None, None, :]).sum(-1)


@dataclass(frozen=True)
class Divergence:
    """Pairwise JSD of the heads of every block.

    Attributes:
        summed: By block site: summed over queries, averaged over sentences, as the paper does.
        normalised: By block site: averaged over queries.
        slots: Sites of blocks whose heads are slots, in which each task has one of the candidates.
    """

    summed: dict[str, Float[Tensor, "head head"]]
    normalised: dict[str, Float[Tensor, "head head"]]
    slots: frozenset[str] = frozenset()

    __repr__ = in_one_line

    def to_frame(self) -> pd.DataFrame:
        """A row for each pair of heads of a block, with both averages."""
        columns: dict[str, list[Any]] = {name: [] for name in ("block", "head", "other")}
        values: dict[str, list[float]] = {"summed": [], "normalised": []}
        for block, matrix in self.summed.items():
            first, second = torch.triu_indices(len(matrix), len(matrix), 1)
            columns["block"] += [block] * len(first)
            columns["head"] += first.tolist()
            columns["other"] += second.tolist()
            for name, column in values.items():
                column += getattr(self, name)[block][first, second].tolist()
        return make_frame({**columns, **values})

    def average(self, attention_type: str | None = None) -> float | None:
        """Averages ``summed`` over the head pairs i < j of all blocks, as the paper does.

        Args:
            attention_type: Average only over blocks of this type.

        Returns:
            The mean over pairs that are active together; None without such a pair.
        """
        return pair_mean(
            *(
                matrix
                for site, matrix in self.summed.items()
                if attention_type in (None, attention_type_of(site))
            )
        )


def pair_mean(*matrices: Float[Tensor, "_ _"]) -> float | None:
    """Averages over all head pairs that are not NaN, over all blocks; None without such a pair."""
    pairs = (matrix[*torch.triu_indices(len(matrix), len(matrix), offset=1)] for matrix in matrices)
    mean = float(torch.cat([torch.zeros(0), *pairs]).nanmean())
    return None if math.isnan(mean) else mean


def divergence(
    model: HeadModel,
    batches: Part | Iterable[Batch],
    guide: ModelGuide | None = None,
    seed: int = 0,
    *,
    latent: bool = True,
) -> Divergence:
    """Computes the JSD between the heads of a model, averaged over sentences.

    Args:
        model: The model.
        batches: A part of a corpus, or batches, each sentence once.
        guide: Sample the heads from this guide; without one they are set to their prior's
            location, as in the paper's figures. Sampling noise alone makes heads differ.
        seed: Seed of the guide's noise.
        latent: Use only blocks with latent logits, where there are any; else all attention blocks.
    """
    modules = [module for module in model.head_blocks if module.has_attention_weights]
    with_prior = [module for module in modules if module.prior is not None]
    selected = {module.block.name for module in (latent and with_prior) or modules}
    summed, normalised = Means(), Means()
    for batch, heads in record_heads(model, batches, guide, seed):
        for block in heads.attention_blocks:
            if block.name in selected:
                recorded = heads[block.name]
                queries = attention_tokens(batch, block.attention_type).valid_queries
                values = head_divergence(recorded.weights, queries)
                active = active_pairs(recorded.active)
                summed.add(block.site(), values, active)
                normalised.add(block.site(), values, active, queries.sum(-1))
    slots = frozenset(module.block.site() for module in modules if _has_slots(module))
    return Divergence(summed.result(), normalised.result(), slots)


def _has_slots(module: HeadBlock) -> bool:
    """Whether tasks may have different heads in one place of a block."""
    selector, attention_type = module.selector, module.block.attention_type
    return selector is not None and selector.num_candidates(attention_type) > selector.num_slots
