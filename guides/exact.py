"""The exact posterior by Bayes' rule, for heads that can be summed out."""

from __future__ import annotations

from typing import Any

from latentheads.families.family import Dependence
from latentheads.guide import ModelGuide
from latentheads.latents.latent import LatentModel
from latentheads.names import Block


class Exact(ModelGuide):
    """The exact posterior of latents that are summed out; the prior for all others.

    Its bound is log p(y | x) itself, given the other latents, which training then maximises.

    Args:
        model: A model with such a latent, as alignments.

    Example:
        >>> options = lh.latents.AlignmentOptions(blocks=1)
        >>> aligned = Translation.of(corpus, latents=[options], width=8, heads=2)
        >>> lh.evaluate(aligned, Exact(aligned), corpus.test).gap
        0.0
    """

    def __init__(self, model: LatentModel) -> None:
        super().__init__(model)
        if not model.is_summed_out:
            raise ValueError("guide exact needs a latent that is summed out, such as alignments")
        self._latents = {site: lat for lat in model.latents.values() for site in lat.sites}

    def dependence(self, block: Block) -> Dependence:
        """Other heads depend on nothing more than in the prior."""
        return Dependence(across_heads=False, on_lower_logits=False)

    def get_posterior(self, name: str, prior: Any) -> Any:
        """Return the exact posterior of latents that are summed out; the prior for others."""
        latent = self._latents.get(name)
        return prior if latent is None else latent.exact_posterior(prior, self.batch)
