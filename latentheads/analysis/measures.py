r"""How spread, how confident and how alike heads are.

For head h with weights :math:`a_{ts}` and outputs :math:`o_t`,

.. math:: \mathrm{entropy}(h) = -\frac1T \sum_t \sum_s a_{ts} \log a_{ts}, \qquad
          \mathrm{confidence}(h) = \frac1T \sum_t \max_s a_{ts}, \qquad
          \mathrm{cosine}(h, h') = \frac1T \sum_t \frac{o_t \cdot o'_t}{\|o_t\| \|o'_t\|}

over all T queries of all sentences that are no padding and in which the head, or both heads, speak;
of a head that never speaks they are NaN. N-gram heads, which have no weights, have a cosine alone.
Confidence is that of Voita et al. (2019, https://arxiv.org/abs/1905.09418),
who exclude the end of the sentence as "not a real token". They do not say whether as a query or as
a key: here, by default, as both. Nothing is normalised again after the exclusion.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from latentheads.analysis.means import Means, pairs
from latentheads.analysis.record import readings
from latentheads.analysis.sides import sides
from latentheads.batch import Batch
from latentheads.corpora import Part
from latentheads.guide import ModelGuide
from latentheads.model import HeadModel

__all__ = ["Measures", "head_confidence", "head_cosine", "head_entropy", "measure"]


def head_entropy(
    weights: Float[Tensor, "*batch head query key"], queries: Bool[Tensor, "*batch query"]
) -> Float[Tensor, "*batch head"]:
    """Entropy of every head's weights, summed over the queries that count, in nats.

    Args:
        weights: What every head reads from each key, for each query.
        queries: True at those that count.
    """
    each = -torch.special.xlogy(weights, weights).sum(-1)
    return (each * queries.unsqueeze(-2)).sum(-1)


def head_confidence(
    weights: Float[Tensor, "*batch head query key"],
    queries: Bool[Tensor, "*batch query"],
    keys: Bool[Tensor, "*batch key"],
) -> Float[Tensor, "*batch head"]:
    """The largest weight on a key that counts, summed over the queries that count.

    Args:
        weights: What every head reads from each key, for each query.
        queries: True at those that count.
        keys: The same of keys.
    """
    each = (weights * keys[..., None, None, :]).amax(-1)
    return (each * queries.unsqueeze(-2)).sum(-1)


def head_cosine(
    outputs: Float[Tensor, "*batch head query dim"], queries: Bool[Tensor, "*batch query"]
) -> Float[Tensor, "*batch head head"]:
    """Cosine between the outputs of all pairs of heads, summed over the queries that count.

    Zeros, as an n-gram head says with all its units off, are at a right angle to everything.

    Args:
        outputs: What every head says at each query.
        queries: True at those that count.
    """
    unit = F.normalize(outputs, dim=-1) * queries[..., None, :, None]
    return torch.einsum("...iqd,...jqd->...ij", unit, unit)


@dataclass(frozen=True)
class Measures:
    """Averages over the queries of the sentences in which a head speaks, by block.

    Attributes:
        entropy: In nats.
        confidence: Mean of the largest weight.
        cosine: Between the outputs of all pairs of heads.
    """

    entropy: dict[str, Float[Tensor, " head"]]
    confidence: dict[str, Float[Tensor, " head"]]
    cosine: dict[str, Float[Tensor, "head head"]]


def measure(
    model: HeadModel,
    parts: Part | Iterable[Batch],
    guide: ModelGuide | None = None,
    seed: int = 0,
    exclude: str = "both",
) -> Measures:
    """Measures the heads of every block, latent or not.

    Args:
        model: The model.
        parts: A part of a corpus, or batches, each sentence once.
        guide: Draws the heads from this guide; without one they stand at their plug-in value.
        seed: Of the guide's noise.
        exclude: Where tokens that only begin or end a sentence do not count for the confidence,
            one of ``EXCLUDE``: as both query and key, as one of them, or nowhere, ``none``.
    """
    entropy, confidence, cosine = Means(), Means(), Means()
    for batch, heads in readings(model, parts, guide, seed):
        for block in heads.blocks:
            found, known = heads[block.name], sides(batch, block.chain)
            real, speaks, name = known.real_queries, found.speaks, block.name
            cosine.add(name, head_cosine(found.outputs, real), pairs(speaks), real.sum(-1))
            if found.attends:
                weights, asking = found.weights, known.asking(exclude)
                sure = head_confidence(weights, asking, known.answering(exclude))
                entropy.add(name, head_entropy(weights, real), speaks, real.sum(-1))
                confidence.add(name, sure, speaks, asking.sum(-1))
    return Measures(entropy.result(), confidence.result(), cosine.result())
