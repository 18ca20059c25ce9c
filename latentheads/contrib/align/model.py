"""The hidden Markov model of one direction as a Pyro model, and guides of its links by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import pyro
import torch
from jaxtyping import Float, Int
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import constraints

from latentheads.checks import check_choice
from latentheads.contrib.align.bitext import PairBatch
from latentheads.contrib.align.chain import ChainWeights, LinkChain
from latentheads.contrib.align.jumps import Jumps
from latentheads.contrib.align.lexicon import BatchTable, TranslationTable


class TargetWords(TorchDistribution):
    """The target words of some sentence pairs, given their links.

    Args:
        linked: Probability of each target word by each source word.
        null: Its probability without a link.
        links: The links, as values of :class:`LinkChain`.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    support = constraints.independent(constraints.nonnegative_integer, 1)

    def __init__(
        self,
        linked: Float[Tensor, "pair target source"],
        null: Float[Tensor, "pair target 1"],
        links: Int[Tensor, "*sample pair target"],
    ) -> None:
        self._columns = torch.cat([null, linked], -1)
        self._links, self._positions = links, linked.shape[-1] + 1
        super().__init__(links.shape[:-1], links.shape[-1:], validate_args=False)

    def log_prob(self, value: Int[Tensor, "pair target"]) -> Float[Tensor, "*sample pair"]:
        """Log-probability of the target words, which are those of the batch."""
        position = torch.where(self._links < self._positions, self._links, 0)
        columns = self._columns.expand(*position.shape, -1)
        log_prob = columns.gather(-1, position[..., None])[..., 0].log()
        return log_prob.masked_fill(value < 0, 0).sum(-1)


@dataclass(frozen=True)
class LinkModel:
    """p(links, target | source) of some sentence pairs; a Pyro model.

    Attributes:
        table: The translation table of the text, or of the batch that it is called with.
        jumps: The jumps of the source.
    """

    table: TranslationTable | BatchTable
    jumps: Jumps

    def __call__(self, batch: PairBatch) -> None:
        """Samples links, and observes the target words: sites ``links`` and ``target``."""
        with pyro.plate("pairs", len(batch.source)):
            links = pyro.sample("links", self.prior(batch))
            words = TargetWords(self.table.linked(batch), self.table.without_link(batch), links)
            pyro.sample("target", words, obs=batch.target)

    def prior(self, batch: PairBatch) -> LinkChain:
        """The prior of the links."""
        linked = batch.source_mask[:, None, :].to(self.jumps.weights.dtype)
        linked = linked.expand(-1, batch.target.shape[1], -1)
        return self._chain(batch, linked, torch.ones_like(linked[..., :1]))

    def posterior(self, batch: PairBatch) -> LinkChain:
        """The exact posterior of the links; its log normaliser is log p(target | source)."""
        return self._chain(batch, self.table.linked(batch), self.table.without_link(batch))

    def _chain(self, batch: PairBatch, linked: Tensor, null: Tensor) -> LinkChain:
        moves = self.jumps.moves(batch)
        weights = ChainWeights(moves, self.jumps.null_probability, linked, null, batch.target_mask)
        return LinkChain(weights)


def _filtered(model: LinkModel, batch: PairBatch) -> LinkChain:
    """Each link given the one before and its own word: the product of p(z_t | z_{t-1}, f_t).

    Its marginals are not p(z_t | f_1, ..., f_t), which weighs the links before by f_t too.
    """
    posterior = model.posterior(batch)
    weights = posterior.weights
    linked, null = weights.padded
    totals = torch.einsum("bij,btj->bti", weights.moves, linked) + null
    later = torch.nn.functional.pad(totals[:, 1:], (0, 0, 0, 1), value=1.0)
    return posterior.with_weights(linked=weights.linked / later[..., 1:], null=weights.null / later)


def _lexical(model: LinkModel, batch: PairBatch) -> LinkChain:
    """Each link given its own word, with all positions alike: the posterior of IBM model 1."""
    posterior = model.posterior(batch)
    moves = (posterior.weights.moves > 0).to(posterior.weights.moves.dtype)
    linked_mass = 1 - model.jumps.null_probability
    return posterior.with_weights(moves=moves * linked_mass / moves.sum(-1, True).clamp(min=1))


def _viterbi(model: LinkModel, batch: PairBatch) -> LinkChain:
    """All mass on the likeliest links."""
    posterior = model.posterior(batch)
    best = torch.nn.functional.one_hot(posterior.likeliest(), 2 * posterior.positions)
    linked, null = best.to(posterior.weights.linked.dtype).split(posterior.positions, -1)
    return posterior.with_weights(linked=linked[..., 1:], null=null)


GUIDES: dict[str, Callable[[LinkModel, PairBatch], LinkChain]] = {
    "exact": LinkModel.posterior,
    "filtered": _filtered,
    "lexical": _lexical,
    "viterbi": _viterbi,
    "tied": LinkModel.prior,
}
"""Posteriors by name: what the links of a model are inferred by."""


class LinkGuide:
    """A guide of the links of a model, for Pyro's inference.

    Args:
        model: The model.
        name: One of :data:`GUIDES`.
    """

    def __init__(self, model: LinkModel, name: str = "exact") -> None:
        check_choice("guide", name, GUIDES)
        self.model, self.name = model, name

    def __call__(self, batch: PairBatch) -> Int[Tensor, "pair target"]:
        """Samples the links of some sentence pairs: site ``links``."""
        with pyro.plate("pairs", len(batch.source)):
            links: Tensor = pyro.sample("links", self.posterior(batch))
        return links

    def posterior(self, batch: PairBatch) -> LinkChain:
        """The distribution of the links of some sentence pairs."""
        return GUIDES[self.name](self.model, batch)
