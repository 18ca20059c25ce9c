r"""Posteriors of the gates of a sentence: inference networks.

.. math:: \mathrm{logit}\, q(b_h = 1 \mid b_{<h}, x, y) = a_h(x, y) + \sum_{j < h} W_{hj}(x, y) b_j

A mean-field posterior has :math:`W = 0`. An autoregressive one is conditioned on earlier heads of
its block, a cascaded one on the heads of lower blocks. A sentence has one subset of heads, which
precedes its first word, so that a posterior conditioned on the prefix is one conditioned on the
source. All start at the prior; where their structure leaves out its dependences, at the product of
independent gates that is nearest to it.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from latentheads.batch import Batch
from latentheads.latents.bernoulli_heads.prior import SubsetPrior, chain_tables, dependence_mask
from latentheads.latents.bernoulli_heads.subsets import (
    HeadSubsets,
    SubsetTable,
    joint_table,
    nearest_product,
)
from latentheads.latents.latent import ConditionOn, LatentPosterior, Structure
from latentheads.layers.target_encoder import TargetEncoder


class _TextEncoder(nn.Module):
    """A vector of a text: the mean of its encoded tokens."""

    def __init__(self, vocab_size: int, size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, size)
        self.encoder = TargetEncoder(size, size)

    def forward(
        self, tokens: Int[Tensor, "batch token"], valid: Bool[Tensor, "batch token"]
    ) -> Float[Tensor, "batch size"]:
        """Encodes each text."""
        states = self.encoder(self.embedding(tokens * valid), valid)
        weights = valid.to(states.dtype)[..., None]
        return (states * weights).sum(-2) / weights.sum(-2).clamp_min(1)


class SubsetPosterior(LatentPosterior):
    """The posterior of the gates of all blocks.

    Args:
        prior: The prior of the gates, which the posterior starts at.
        vocabulary_sizes: Those of source and target; the encoders have embeddings of their own.
        structure: Which heads a head is conditioned on.
        condition_on: The text that the posterior is conditioned on.
        size: Width of the encoders.
    """

    mask: Tensor
    index: Tensor

    def __init__(
        self,
        prior: SubsetPrior,
        vocabulary_sizes: Mapping[str, int],
        structure: Structure,
        condition_on: ConditionOn,
        size: int = 32,
    ) -> None:
        super().__init__()
        self.structure, self.condition_on = structure, condition_on
        self._prior = (prior,)  # a tuple, so that it is not registered as a submodule
        heads = prior.heads
        sides = ("source", "target") if condition_on == "target" else ("source",)
        self.encoders = nn.ModuleDict(
            {
                side: _TextEncoder(vocabulary_sizes[side], size)
                for side in sides
                if side in vocabulary_sizes
            }
        )
        mask = dependence_mask(heads, structure)
        self.register_buffer("mask", mask, persistent=False)
        # where a mask is true is looked up once: on a GPU that synchronises
        self.register_buffer("index", mask.flatten().nonzero().squeeze(-1), persistent=False)
        self._has_prior_form = bool(mask.logical_or(~prior.mask.cpu()).all())
        self.logits = nn.Linear(len(self.encoders) * size + 1, len(mask), bias=False)
        nn.init.zeros_(self.logits.weight)
        self.weights: nn.Linear | None = None
        if mask.any():
            self.weights = nn.Linear(self.logits.in_features, int(mask.sum()), bias=False)
            nn.init.zeros_(self.weights.weight)

    def forward(self, batch: Batch) -> list[SubsetTable]:
        """Computes the posterior of every block."""
        (prior,) = self._prior
        features = self._features(batch)
        logits = self._initial_logits() + self.logits(features)
        heads = logits.shape[-1]
        weight = logits.new_zeros(*logits.shape[:-1], heads * heads)
        if self.weights is not None:
            # under autocast a layer's output is narrower than the prior's logits
            dependences = self.weights(features).to(weight.dtype)
            weight = weight.index_copy(-1, self.index, dependences)
        weight = weight.unflatten(-1, (heads, heads))
        if prior.weight is not None:
            weight = weight + prior.weight.detach() * (self.mask & prior.mask)
        return chain_tables(logits, weight, prior.heads)

    def _initial_logits(self) -> Float[Tensor, " head"]:
        """The logits at the start: the prior's, or those of the product nearest to it."""
        (prior,) = self._prior
        if self._has_prior_form:
            return prior.logits.detach()
        return nearest_product(joint_table(prior()), sum(prior.heads))

    def _features(self, batch: Batch) -> Float[Tensor, "batch feature"]:
        """A constant, and the vector of each text."""
        texts = {"target": (batch.scored, batch.scored_mask)}
        if "source" in self.encoders:
            if batch.source is None:
                raise ValueError("the posterior of the heads reads the source: give its tokens")
            texts["source"] = batch.source, batch.source_valid
        vectors = [encoder(*texts[side]) for side, encoder in self.encoders.items()]
        constant = self.logits.weight.new_ones(len(batch), 1)
        return torch.cat([constant, *vectors], -1)

    def posterior_of(self, prior: HeadSubsets, batch: Batch) -> HeadSubsets:
        """The posterior of one block; the prior itself without its context."""
        if prior.context is None:
            return prior
        return prior.with_table(prior.context.cached(self, batch)[prior.context.index])
