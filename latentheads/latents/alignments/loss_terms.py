"""The terms of the objectives that alignments are trained by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from pyro.poutine import Trace
from torch import Tensor

from latentheads.latents.alignments.enumeration import enumerate_alignments
from latentheads.latents.alignments.pass_samples import (
    kl_enumeration,
    sample_alignments,
    soft_log_prob,
)
from latentheads.latents.sampled import importance_bound, score_bound, wake_objective


def alignment_loss_terms(
    model_trace: Trace, guide_trace: Trace, objective: str, num_samples: int
) -> tuple[Tensor, Mapping[str, Tensor], bool]:
    """The terms of a training objective, as :meth:`SummedOut.loss_terms` describes them.

    ``bound`` and ``sampled`` are the guide's bound, summed over all alignments or of one sample;
    the KL is a part of it. ``marginal`` is log p(y | x), with the gradient of the guide's bound
    beside it. ``iwae`` and ``rws`` weigh several samples; their weights contain the KL.
    """
    if objective == "relaxed":
        raise ValueError("alignments have no loss relaxed: it is of gates between 0 and 1")
    if objective == "bound":
        enumeration = enumerate_alignments(model_trace, guide_trace, marginal=False)
        return enumeration.log_likelihood, enumeration.kl(), True
    if objective == "marginal":
        enumeration = enumerate_alignments(model_trace, guide_trace)
        fixed = enumeration.detach_model()
        log_likelihood = enumeration.log_evidence
        if any(parameters.requires_grad for parameters in fixed.posterior):
            bound = fixed.log_likelihood - sum(fixed.kl().values())
            log_likelihood = log_likelihood + bound - bound.detach()
        return log_likelihood, _zeros(enumeration.sites, log_likelihood), False
    if objective == "sampled":
        samples = sample_alignments(model_trace, guide_trace)
        kl = kl_enumeration(model_trace, guide_trace).kl()
        return score_bound(samples, soft_log_prob(model_trace)), kl, True
    samples = sample_alignments(model_trace, guide_trace, num_samples)
    weigh = importance_bound if objective == "iwae" else wake_objective
    log_likelihood = weigh(samples)
    sites = kl_enumeration(model_trace, guide_trace).sites
    return log_likelihood, _zeros(sites, log_likelihood), False


def _zeros(sites: Iterable[str], like: Tensor) -> dict[str, Tensor]:
    return {name: torch.zeros_like(like) for name in sites}
