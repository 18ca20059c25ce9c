r"""Enumeration of all alignments of a pass.

If alignments are few enough, all terms of the bound are exact
sums: :math:`\mathbb E_q[\log p(y \mid z, x)]`, the KL of each block, and the exact log p(y | x),
which does not depend on the guide. A sum has no sampling noise and is differentiable in the guide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from pyro.poutine import Trace
from torch import Tensor

from latentheads.latents.alignments.distribution import (
    Alignments,
    CategoricalParameters,
    check_posterior,
    sample_blocks,
    word_log_probs,
)
from latentheads.latents.alignments.exact import ExactInference
from latentheads.latents.summed_out import Enumeration
from latentheads.names import TARGET

ENTROPIES = ("prior_gap", "prior_entropy", "posterior_entropy", "information")


@dataclass(frozen=True, repr=False)
class AlignmentEnumeration(Enumeration):
    """All alignments of a pass, under the model and under its guide.

    Attributes:
        inference: Exact inference under the model.
        posterior: The guide's posterior of every block.
        sites: The blocks' sample sites.
        tied: The sites whose posterior is the prior itself.
    """

    inference: ExactInference
    posterior: Sequence[CategoricalParameters]
    sites: Sequence[str]
    tied: Sequence[str]

    @property
    def log_evidence(self) -> Float[Tensor, "*batch"]:
        return self.inference.log_evidence

    @property
    def log_likelihood(self) -> Float[Tensor, "*batch"]:
        return self.inference.expected_log_likelihood(self.posterior)

    def kl(self) -> dict[str, Float[Tensor, "*batch"]]:
        kl = dict(zip(self.sites, self.inference.kl(self.posterior), strict=True))
        return {
            site: torch.zeros_like(value) if site in self.tied else value
            for site, value in kl.items()
        }

    def gap(self) -> dict[str, Float[Tensor, "*batch"]]:
        return dict(zip(self.sites, self.inference.gap(self.posterior), strict=True))

    def entropies(self) -> dict[str, Float[Tensor, "*batch"]]:
        return {name: getattr(self.inference, name) for name in ENTROPIES}

    @torch.no_grad()
    def log_weights(self, num_samples: int) -> Float[Tensor, sample * batch]:
        valid, priors = self.inference.valid, self.inference.priors
        positions = sample_blocks(self.posterior, valid, num_samples)
        under_model, under_guide = (
            word_log_probs(parameters, valid, positions).double()
            for parameters in (priors, self.posterior)
        )
        return (under_model - under_guide).sum(-1) + self._log_likelihood_of(positions)

    def _log_likelihood_of(
        self, positions: Int[Tensor, "sample *batch target head"]
    ) -> Float[Tensor, sample * batch]:
        """Log p(y | z, x) of the alignments of all heads."""
        emissions = self.inference.emissions
        # the index of all heads' positions in a flattened table, the first head's first
        index = positions[..., 0]
        for head in range(1, positions.shape[-1]):
            index = index * emissions.shape[-1] + positions[..., head]
        flat = emissions.flatten(self.inference.valid.ndim)
        flat = flat.expand(*index.shape, flat.shape[-1])
        token_log_probs = flat.gather(-1, index[..., None])[..., 0]
        return (token_log_probs.double() * self.inference.valid).sum(-1)

    def detach_model(self) -> AlignmentEnumeration:
        """Detach the model, and posteriors that are the prior: gradients reach the guide only."""
        detached_priors = [parameters.detached() for parameters in self.inference.priors]
        inference = replace(
            self.inference, priors=detached_priors, emissions=self.inference.emissions.detach()
        )
        pairs = zip(self.sites, self.posterior, strict=True)
        posterior = [
            parameters.detached() if name in self.tied else parameters for name, parameters in pairs
        ]
        return replace(self, inference=inference, posterior=posterior)


def enumerate_alignments(
    model_trace: Trace, guide_trace: Trace, marginal: bool = True
) -> AlignmentEnumeration:
    """Enumerate the alignments of a pass.

    Args:
        model_trace: The model's trace.
        guide_trace: The guide's trace; a block without a site keeps its prior.
        marginal: Whether the model is trained by the marginal likelihood, not by the guide's bound.
            It only selects which gradient is precomputed.

    Raises:
        ValueError: A posterior is not a distribution of alignments, or has another padding mask.
    """
    target = model_trace.nodes[TARGET]
    posterior_sites = get_posterior_sites(model_trace, guide_trace)
    posterior = [site["fn"].parameters for site in posterior_sites.values()]
    inference = target["fn"].exact_inference(target["value"], None if marginal else posterior)
    return AlignmentEnumeration(
        inference, posterior, list(posterior_sites), get_tied_sites(model_trace, posterior_sites)
    )


def get_posterior_sites(model_trace: Trace, guide_trace: Trace) -> dict[str, dict[str, Any]]:
    """The guide's sites of all blocks, from the lowest; the model's if the guide has none."""
    sites = {}
    for name, site in model_trace.nodes.items():
        if site["type"] == "sample" and isinstance(site["fn"], Alignments):
            sites[name] = guide_trace.nodes.get(name, site)
            check_posterior(name, sites[name]["fn"], site["fn"])
    return sites


def get_tied_sites(model_trace: Trace, posterior_sites: Mapping[str, dict[str, Any]]) -> list[str]:
    """The sites whose posterior is the prior itself."""
    return [
        name
        for name, site in posterior_sites.items()
        if site["fn"] is model_trace.nodes[name]["fn"]
    ]
