"""The exact posterior by Bayes' rule, for heads that can be summed out."""

from __future__ import annotations

from typing import Any

from latentheads.families import Dependence
from latentheads.guide import ModelGuide
from latentheads.latents.alignments.aligner import AlignmentContext
from latentheads.latents.alignments.distribution import Alignments
from latentheads.model import HeadModel
from latentheads.names import Block
from latentheads.posterior_lookup import with_parameters

__all__ = ["Exact"]


class Exact(ModelGuide):
    """The exact posterior of alignments; the prior for all other heads.

    Its bound is log p(y | x) itself, given the other heads, which training then maximises.

    Args:
        model: A model with alignments.

    Example:
        >>> options = lh.AlignmentOptions(blocks=1)
        >>> aligned = Translation.of(corpus, latent=(), alignments=options, width=8, heads=2)
        >>> lh.evaluate(aligned, Exact(aligned), corpus.test).gap
        0.0
    """

    def __init__(self, model: HeadModel) -> None:
        super().__init__(model)
        if not model.has_latent_alignments:
            raise ValueError("guide exact needs latent alignments: give alignments 1 or 2")

    def dependence(self, block: Block) -> Dependence:
        """Other heads depend on nothing more than in the prior."""
        return Dependence(across_heads=False, on_lower_logits=False)

    def get_posterior(self, name: str, prior: Any) -> Any:
        """Return the exact posterior of alignments; the prior for other sites."""
        if isinstance(prior, Alignments) and isinstance(prior.context, AlignmentContext):
            context = prior.context
            parameters = context.alignment_pass.exact_inference(self.batch.scored).posterior()[
                context.index
            ]
            return with_parameters(prior, parameters)
        return prior
