"""Bernoulli heads: which heads of a few blocks are active in a sentence, summed over exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import pyro
import torch
from torch import Tensor, nn

from latentheads.attention.block import HeadBlock
from latentheads.batch import Batch
from latentheads.latents.bernoulli_heads.enumeration import SubsetEnumeration
from latentheads.latents.bernoulli_heads.passes import GatedPass
from latentheads.latents.bernoulli_heads.posterior import SubsetPosterior
from latentheads.latents.bernoulli_heads.prior import Prior, SubsetPrior
from latentheads.latents.bernoulli_heads.subsets import (
    HeadSubsets,
    SubsetTable,
    all_subsets,
    joint_table,
)
from latentheads.latents.bernoulli_heads.tokens import GatedTokens
from latentheads.latents.latent import ConditionOn, Latent, Structure
from latentheads.latents.network import Choice, LatentNetwork, Passes
from latentheads.layers.numeric import version_of
from latentheads.names import Block

ACTIVE = "active"
"""The latent of a block: which of its heads are active in a sentence."""


@dataclass(frozen=True)
class SubsetContext:
    """What a posterior of a block's gates may be computed from.

    Attributes:
        index: The index of the block among those with gates, from the lowest.
        gated_pass: The pass: the likelihood of every subset.
        prior: The prior of every block.
        tables: The batch and the posterior of every block, once computed; shared by all blocks.
    """

    index: int
    gated_pass: GatedPass
    prior: Sequence[SubsetTable]
    tables: dict[object, tuple[Batch, Sequence[SubsetTable]]] = field(default_factory=dict)

    def cached(self, posterior: SubsetPosterior, batch: Batch) -> Sequence[SubsetTable]:
        """The posterior of every block: one call of the inference network in a pass."""
        weights = sum(map(version_of, posterior.parameters()))
        key = posterior, id(batch), torch.is_grad_enabled(), weights
        if key not in self.tables:  # with the batch, so that no other has its address
            self.tables[key] = batch, posterior(batch)
        return self.tables[key][1]

    def exact(self, batch: Batch) -> Sequence[SubsetTable]:
        """The exact posterior of every block, by Bayes' rule."""
        log_probs = self.gated_pass.log_probs_of_subsets(batch.scored)
        return SubsetEnumeration(log_probs, self.prior, self.prior, ()).exact_tables()


class BernoulliHeads(nn.Module, Latent):
    """Gates of the heads of a few blocks, of each sentence its own.

    A block's gates are sampled at the site ``<block>.active``, before the network runs.

    Args:
        addresses: The blocks with gates, from the lowest.
        structure: Which other heads the prior of a head is conditioned on.
        rate: The prior probability of a head to be active.
        gibibytes: Memory of the layers above the gates; see :class:`GatedPass`.
    """

    name: ClassVar[str] = "bernoulli-heads"
    is_summed_out = True  # the target's distribution is a sum over all subsets

    def __init__(
        self, addresses: Sequence[Block], structure: Prior, rate: float, gibibytes: float
    ) -> None:
        super().__init__()
        self.addresses, self.structure = list(addresses), structure
        self.rate, self.gibibytes = rate, gibibytes
        self.temperature: float | None = 1.0
        self.prior = SubsetPrior(self.heads, structure, rate)

    @property
    def heads(self) -> list[int]:
        """Heads of every block."""
        return [block.heads for block in self.addresses]

    @property
    def modules_to_save(self) -> Mapping[str, nn.Module]:
        """The prior, which is learned unless heads are independent."""
        return {"bernoulli_heads": self}

    @property
    def sites(self) -> list[str]:
        return [block.site(ACTIVE) for block in self.addresses]

    @property
    def fixed_blocks(self) -> list[str]:
        return [block.name for block in self.addresses]

    def excludes(self, other: Latent) -> bool:
        """Whether another latent decides which heads are active, or runs the network."""
        return other.selects_heads or other.runs_network

    def check_blocks(self, model: LatentNetwork) -> None:
        """Raises an error if attention logits have noise, which subsets do not sum over."""
        if model.samples_heads:
            raise ValueError(
                "bernoulli-heads sums over passes without other noise: attention logits must "
                "have prior delta"
            )

    def gated_blocks(self, model: LatentNetwork) -> list[HeadBlock]:
        """The blocks of a model that have gates, from the lowest."""
        self.check_blocks(model)  # a model of one's own may not have asked
        modules = {
            module.block.name: module
            for module in model.head_blocks
            if isinstance(module, HeadBlock)
        }
        return [modules[block.name] for block in self.addresses]

    def token_distribution(
        self, model: LatentNetwork, batch: Batch, choices: Mapping[str, Choice] | None
    ) -> GatedTokens:
        """Samples the gates, runs the network, and returns the distribution of the tokens."""
        blocks = self.gated_blocks(model)
        gated_pass = GatedPass(model, batch, blocks, choices or {}, self.gibibytes)
        gated_pass.temperature = self.temperature or 1.0
        prior, parts = self.prior(), list[Tensor]()
        tables: dict[object, tuple[Batch, Sequence[SubsetTable]]] = {}
        for index, address in enumerate(self.addresses):
            lower = _join(parts) if parts else None
            context = SubsetContext(index, gated_pass, prior, tables)
            shape = (len(batch),) if lower is None else lower.shape[:-1]
            distribution = HeadSubsets(prior[index], lower, shape, context)
            parts.append(pyro.sample(address.site(ACTIVE), distribution))
        return GatedTokens(gated_pass.tokens_given(_join(parts)), gated_pass, prior)

    def decoding_mixture(self, model: LatentNetwork, batch: Batch) -> Passes:
        """All subsets of heads, decoded side by side."""
        log_prior = joint_table(self.prior())
        subsets = all_subsets(sum(self.heads), log_prior)
        parts = subsets.split(self.heads, -1)
        names = [module.block.name for module in self.gated_blocks(model)]
        return Passes(log_prior, dict(zip(names, parts, strict=True)))

    def make_posterior(
        self, model: LatentNetwork, structure: Structure, condition_on: ConditionOn
    ) -> SubsetPosterior:
        return SubsetPosterior(self.prior, model.vocabulary_sizes, structure, condition_on)

    def exact_posterior(self, prior: HeadSubsets, batch: Batch) -> HeadSubsets:
        context = prior.context
        if not isinstance(context, SubsetContext):
            return prior
        return prior.with_table(context.exact(batch)[context.index])


def _join(parts: Sequence[Tensor]) -> Tensor:
    """Concatenates the gates of blocks, whose particles may differ."""
    shape = torch.broadcast_shapes(*(part.shape[:-1] for part in parts))
    return torch.cat([part.expand(*shape, -1) for part in parts], -1)
