r"""All alignments of a pass, known without drawing them.

The alignments of a pass are drawn, as all latents are. Where they are few enough, everything that
their guide's bound needs is a sum: :math:`\mathbb E_q[\log p(y \mid z, x)]`, the KL of each block,
and the exact log p(y | x) that no guide changes. A sum has no noise, and a gradient in every guide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from pyro.poutine import Trace
from torch import Tensor

from latentheads.alignment.aligner import AlignedTokens
from latentheads.alignment.distribution import (
    Alignments,
    CategoricalParameters,
    check_answer,
    sample_blocks,
    word_log_probs,
)
from latentheads.alignment.exact import ExactInference
from latentheads.names import TARGET

__all__ = ["Enumeration", "enumerate_alignments", "find_answers", "find_tied"]


@dataclass(frozen=True)
class Enumeration:
    """All alignments of a pass, under the model and under its guide.

    Attributes:
        summed: Under the model.
        posterior: The guide's, of every block.
        sites: The blocks' sites.
        tied: The sites whose posterior is the prior itself.
    """

    summed: ExactInference
    posterior: Sequence[CategoricalParameters]
    sites: Sequence[str]
    tied: Sequence[str]

    @property
    def log_evidence(self) -> Float[Tensor, "*batch"]:
        """Exact log p(y | x) of every sentence, given all other heads."""
        return self.summed.log_evidence

    @property
    def log_likelihood(self) -> Float[Tensor, "*batch"]:
        """The mean of log p(y | z, x) under the guide."""
        return self.summed.expected(self.posterior)

    def kl(self) -> dict[str, Float[Tensor, "*batch"]]:
        """The KL of every block; exactly 0 where the posterior is the prior."""
        found = dict(zip(self.sites, self.summed.kl(self.posterior), strict=True))
        return {n: torch.zeros_like(v) if n in self.tied else v for n, v in found.items()}

    def gap(self) -> dict[str, Float[Tensor, "*batch"]]:
        """The KL of every block's posterior from the exact one: together, what the bound lacks."""
        return dict(zip(self.sites, self.summed.gap(self.posterior), strict=True))

    @torch.no_grad()
    def log_weights(self, draws: int) -> Float[Tensor, draw * batch]:
        """Draws alignments anew: ``log p(y, z | x) - log q(z)`` of each draw, without a pass.

        Args:
            draws: How many.
        """
        valid, priors = self.summed.valid, self.summed.priors
        drawn = sample_blocks(self.posterior, valid, draws)
        under_model, under_guide = (
            word_log_probs(laws, valid, drawn).double() for laws in (priors, self.posterior)
        )
        return (under_model - under_guide).sum(-1) + self._log_likelihood_of(drawn)

    def _log_likelihood_of(
        self, drawn: Int[Tensor, "draw *batch target head"]
    ) -> Float[Tensor, draw * batch]:
        """Log p(y | z, x) of alignments of all heads."""
        table, keys = self.summed.words, self.summed.words.shape[-1]
        place = drawn[..., 0]
        for head in range(1, drawn.shape[-1]):
            place = place * keys + drawn[..., head]
        flat = table.flatten(self.summed.valid.ndim)
        flat = flat.expand(*place.shape, flat.shape[-1])
        words = flat.gather(-1, place[..., None])[..., 0]
        return (words.double() * self.summed.valid).sum(-1)

    def of_fixed_model(self) -> Enumeration:
        """The same with gradients in the guide alone, and none where the posterior is the prior."""
        fixed = [law.detached() for law in self.summed.priors]
        summed = replace(self.summed, priors=fixed, words=self.summed.words.detach())
        own = zip(self.sites, self.posterior, strict=True)
        posterior = [law.detached() if name in self.tied else law for name, law in own]
        return replace(self, summed=summed, posterior=posterior)


def enumerate_alignments(
    model_trace: Trace, guide_trace: Trace, marginal: bool = True
) -> Enumeration | None:
    """Finds the alignments of a pass; None where there are none.

    Args:
        model_trace: The model's.
        guide_trace: The guide's; a block that it leaves out keeps its prior.
        marginal: Whether the model is trained by the exact sum, not by the guide's bound. The
            result is the same: this says for which of the two the gradient is prepared.

    Raises:
        ValueError: A posterior is no law of alignments, or counts other words.
    """
    target = model_trace.nodes[TARGET]
    law = target["fn"]
    if not isinstance(law, AlignedTokens):
        return None
    answers = find_answers(model_trace, guide_trace)
    posterior = [site["fn"].pointing for site in answers.values()]
    summed = law.summed(target["value"], None if marginal else posterior)
    return Enumeration(summed, posterior, list(answers), find_tied(model_trace, answers))


def find_answers(model_trace: Trace, guide_trace: Trace) -> dict[str, dict[str, Any]]:
    """The guide's sites of all blocks, from the lowest; the model's where it leaves one out.

    Raises:
        ValueError: A posterior is no law of alignments, or counts other words.
    """
    found = {}
    for name, site in model_trace.nodes.items():
        if site["type"] == "sample" and isinstance(site["fn"], Alignments):
            found[name] = guide_trace.nodes.get(name, site)
            check_answer(name, found[name]["fn"], site["fn"])
    return found


def find_tied(model_trace: Trace, answers: Mapping[str, dict[str, Any]]) -> list[str]:
    """The sites whose posterior is the prior itself."""
    return [name for name, site in answers.items() if site["fn"] is model_trace.nodes[name]["fn"]]
