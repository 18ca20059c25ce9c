"""Bayes' rule, where the heads are few enough to be summed: the best guide there is."""

from __future__ import annotations

from typing import Any

from latentheads.alignment.aligner import AlignmentContext
from latentheads.alignment.distribution import Alignments
from latentheads.families import Dependence
from latentheads.guide import ModelGuide
from latentheads.model import HeadModel
from latentheads.names import Block
from latentheads.posterior_lookup import conditioned

__all__ = ["Exact"]


class Exact(ModelGuide):
    """The exact posterior of the alignments; of all other heads the prior.

    Its bound is log p(y | x) itself, given the other heads, and training with it maximises that.

    Args:
        model: A model with alignments.

    Example:
        >>> options = lh.AlignmentOptions(alignments=1)
        >>> aligned = Translation.of(corpus, latent=(), alignments=options, width=8, heads=2)
        >>> lh.evaluate(aligned, Exact(aligned), corpus.test).gap
        0.0
    """

    def __init__(self, model: HeadModel) -> None:
        super().__init__(model)
        if not model.has_latent_alignments:
            raise ValueError("guide exact needs alignments that are drawn: give alignments 1 or 2")

    def dependence(self, block: Block) -> Dependence:
        """Of the other heads nothing more than the prior."""
        return Dependence(across_heads=False, on_lower_logits=False)

    def get_posterior(self, name: str, prior: Any) -> Any:
        """Returns the exact posterior of alignments, and the prior elsewhere."""
        if isinstance(prior, Alignments) and isinstance(prior.context, AlignmentContext):
            context = prior.context
            found = context.aligned.summed(self.batch.scored).posterior()[context.place]
            return conditioned(prior, found)
        return prior
