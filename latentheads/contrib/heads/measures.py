r"""Entropy and confidence of heads, and cosine between their outputs.

For head h with weights :math:`a_{ts}` and outputs :math:`o_t`,

.. math:: \mathrm{entropy}(h) = -\frac1T \sum_t \sum_s a_{ts} \log a_{ts}, \qquad
          \mathrm{confidence}(h) = \frac1T \sum_t \max_s a_{ts}, \qquad
          \mathrm{cosine}(h, h') = \frac1T \sum_t \frac{o_t \cdot o'_t}{\|o_t\| \|o'_t\|}

over all T valid queries of the sentences in which the head, or both heads, are active; NaN for a
head that is never active. N-gram heads have no weights, and so only a cosine.
Confidence is that of Voita et al. (2019, https://arxiv.org/abs/1905.09418),
who exclude the end of the sentence as "not a real token". They do not say whether as a query or as
a key; the default here is both. Weights are not renormalised after the exclusion.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from latentheads.batch import Batch
from latentheads.contrib.heads.means import Means, active_pairs
from latentheads.contrib.heads.record import record_heads
from latentheads.contrib.heads.tokens import attention_tokens
from latentheads.corpora.part import Part
from latentheads.frames import in_one_line, make_head_frame
from latentheads.guide import ModelGuide
from latentheads.model import HeadModel

if TYPE_CHECKING:
    import pandas as pd


def head_entropy(
    weights: Float[Tensor, "*batch head query key"], queries: Bool[Tensor, "*batch query"]
) -> Float[Tensor, "*batch head"]:
    """Entropy of every head's weights, summed over the counted queries, in nats."""
    entropies = -torch.special.xlogy(weights, weights).sum(-1)
    return (entropies * queries.unsqueeze(-2)).sum(-1)


def head_confidence(
    weights: Float[Tensor, "*batch head query key"],
    queries: Bool[Tensor, "*batch query"],
    keys: Bool[Tensor, "*batch key"],
) -> Float[Tensor, "*batch head"]:
    """The largest weight on a counted key, summed over the counted queries."""
    confidences = (weights * keys[..., None, None, :]).amax(-1)
    return (confidences * queries.unsqueeze(-2)).sum(-1)


def head_cosine(
    outputs: Float[Tensor, "*batch head query dim"], queries: Bool[Tensor, "*batch query"]
) -> Float[Tensor, "*batch head head"]:
    """Cosine between the outputs of all pairs of heads, summed over the counted queries.

    The cosine with an output of zeros, such as that of an n-gram head with all units off, is 0.
    """
    unit = F.normalize(outputs, dim=-1) * queries[..., None, :, None]
    return torch.einsum("...iqd,...jqd->...ij", unit, unit)


@dataclass(frozen=True)
class Measures:
    """Averages over the queries of the sentences in which a head is active, by block.

    Attributes:
        entropy: In nats.
        confidence: Mean of the largest weight.
        cosine: Between the outputs of all pairs of heads.
    """

    entropy: dict[str, Float[Tensor, " head"]]
    confidence: dict[str, Float[Tensor, " head"]]
    cosine: dict[str, Float[Tensor, "head head"]]

    __repr__ = in_one_line

    def to_frame(self) -> pd.DataFrame:
        """A row for each head, with its entropy and confidence."""
        return make_head_frame({"entropy": self.entropy, "confidence": self.confidence})


def measure(
    model: HeadModel,
    batches: Part | Iterable[Batch],
    guide: ModelGuide | None = None,
    seed: int = 0,
    exclude: str = "both",
) -> Measures:
    """Computes entropy, confidence and cosine of the heads of every block, latent or not.

    Args:
        model: The model.
        batches: A part of a corpus, or batches, each sentence once.
        guide: Sample the heads from this guide; without one they are set to their plug-in value.
        seed: Seed of the guide's noise.
        exclude: Where BOS and EOS do not count for the confidence, one of ``EXCLUDE``: ``both``
            as query and as key, ``query``, ``key`` or ``none``.
    """
    entropy, confidence, cosine = Means(), Means(), Means()
    for batch, heads in record_heads(model, batches, guide, seed):
        for block in heads.blocks:
            recorded, tokens = heads[block.name], attention_tokens(batch, block.attention_type)
            name, active, queries = block.name, recorded.active, tokens.valid_queries
            lengths = queries.sum(-1)
            cosine.add(name, head_cosine(recorded.outputs, queries), active_pairs(active), lengths)
            if recorded.has_attention_weights:
                weights, counted = recorded.weights, tokens.counted_queries(exclude)
                largest = head_confidence(weights, counted, tokens.counted_keys(exclude))
                entropy.add(name, head_entropy(weights, queries), active, lengths)
                confidence.add(name, largest, active, counted.sum(-1))
    return Measures(entropy.result(), confidence.result(), cosine.result())
