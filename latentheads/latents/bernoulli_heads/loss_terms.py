r"""The terms of the objectives that gates are trained by.

``bound`` is the guide's bound, summed over all subsets; the KL is a part of it. ``marginal`` is
log p(y | x), with the gradient of the guide's bound beside it. ``sampled`` is the bound of one
sample, with the score-function gradient :math:`(\log p(y \mid x, b) - c) \nabla \log q(b)`. Its
baseline c is the log-likelihood with every gate set to its prior mean. ``iwae`` and ``rws`` weigh
several samples; their weights contain the KL. ``relaxed`` is :math:`\log p(y \mid x, \tilde b)` of
gates between 0 and 1, less the exact KL of the gates that are 0 or 1: no bound.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from jaxtyping import Float
from pyro.poutine import Trace
from torch import Tensor

from latentheads.latents.bernoulli_heads.enumeration import (
    SubsetEnumeration,
    enumerate_subsets,
    posterior_sites,
)
from latentheads.latents.bernoulli_heads.passes import GatedPass
from latentheads.latents.bernoulli_heads.subsets import (
    HeadSubsets,
    all_subsets,
    joint_table,
    sample_relaxed,
)
from latentheads.latents.sampled import (
    AlignmentSamples,
    importance_bound,
    score_bound,
    wake_objective,
)
from latentheads.names import TARGET


def subset_loss_terms(
    model_trace: Trace, guide_trace: Trace, objective: str, num_samples: int
) -> tuple[Tensor, Mapping[str, Tensor], bool]:
    """The terms of an objective, as ``SummedOut.loss_terms`` in ``latents/summed_out.py``."""
    if objective == "bound":
        enumeration = enumerate_subsets(model_trace, guide_trace, for_bound=True)
        return enumeration.log_likelihood, enumeration.kl(), True
    if objective == "marginal":
        enumeration = enumerate_subsets(model_trace, guide_trace)
        log_likelihood = enumeration.log_evidence + _guide_gradient(enumeration)
        return log_likelihood, _zeros(enumeration.sites, log_likelihood), False
    if objective == "sampled":
        samples = _samples(model_trace, guide_trace, 1)
        bound = score_bound(samples, _baseline(model_trace))
        return bound, _kl_given_lower(model_trace, guide_trace), True
    if objective == "relaxed":
        log_likelihood = _relaxed_log_likelihood(model_trace, guide_trace)
        return log_likelihood, _kl_given_lower(model_trace, guide_trace), True
    samples = _samples(model_trace, guide_trace, num_samples)
    bound = importance_bound(samples) if objective == "iwae" else wake_objective(samples)
    return bound, _zeros(posterior_sites(model_trace, guide_trace), bound), False


def _relaxed_log_likelihood(model_trace: Trace, guide_trace: Trace) -> Float[Tensor, "*batch"]:
    """Log-likelihood of every sentence given a relaxed sample of its gates."""
    target, sites = model_trace.nodes[TARGET], posterior_sites(model_trace, guide_trace)
    gated_pass: GatedPass = target["fn"].gated_pass
    posteriors = [site["fn"] for site in sites.values()]
    gates = sample_relaxed(posteriors, gated_pass.temperature)
    return gated_pass.token_log_probs(gates[None], target["value"], 1.0)[0].sum(-1)


def _guide_gradient(enumeration: SubsetEnumeration) -> Tensor:
    """Zeros with the gradient of the guide's bound in the guide."""
    fixed = enumeration.detach_model()
    bound = fixed.log_likelihood - torch.stack([*fixed.kl().values()]).sum(0)
    return bound - bound.detach()


def _zeros(sites: Collection[str], like: Tensor) -> dict[str, Tensor]:
    return {name: torch.zeros_like(like) for name in sites}


def _kl_given_lower(model_trace: Trace, guide_trace: Trace) -> dict[str, Tensor]:
    """The KL of every block, in expectation over all gates: it needs no pass of the network."""
    sites = posterior_sites(model_trace, guide_trace)
    priors = {name: model_trace.nodes[name]["fn"] for name in sites}
    some = next(iter(sites.values()))["fn"]
    joint = 2 ** sum(site["fn"].table.heads for site in sites.values())
    tied = [name for name, site in sites.items() if site["fn"] is priors[name]]
    tables = [site["fn"].table for site in sites.values()]
    no_likelihood = some.log_probs.new_zeros(*some.batch_shape, joint)
    prior_tables = [prior.table for prior in priors.values()]
    return SubsetEnumeration(no_likelihood, prior_tables, tables, list(sites), tied).kl()


def _samples(model_trace: Trace, guide_trace: Trace, num_samples: int) -> AlignmentSamples:
    """Samples of the gates with their log-probabilities; one sample is that of the pass."""
    target, sites = model_trace.nodes[TARGET], posterior_sites(model_trace, guide_trace)
    priors = [model_trace.nodes[name]["fn"] for name in sites]
    posteriors = [site["fn"] for site in sites.values()]
    if num_samples == 1:
        parts = [site["value"][None] for site in sites.values()]
        token_log_probs = target["fn"].token_log_prob(target["value"])[None]
    else:
        parts = _sample_blocks(posteriors, num_samples)
        gated_pass: GatedPass = target["fn"].gated_pass
        token_log_probs = gated_pass.token_log_probs(torch.cat(parts, -1), target["value"])
    tied = [q is p for q, p in zip(posteriors, priors, strict=True)]
    log_q = _log_probs(posteriors, parts)
    return AlignmentSamples(
        token_log_probs.sum(-1, keepdim=True),
        torch.stack(_log_probs(priors, parts)).sum(0)[..., None],
        torch.stack(log_q).sum(0)[..., None],
        chained=True,
        log_tied=sum(
            (values[..., None] for values, is_tied in zip(log_q, tied, strict=True) if is_tied),
            torch.zeros_like(log_q[0])[..., None],
        ),
    )


def _sample_blocks(
    posteriors: Collection[HeadSubsets], num_samples: int
) -> list[Float[Tensor, "sample *batch head"]]:
    """New samples of the gates of every block, from the lowest."""
    parts: list[Tensor] = []
    for posterior in posteriors:
        lower = torch.cat(parts, -1) if parts else None
        shape = (num_samples, *posterior.batch_shape)
        parts.append(HeadSubsets(posterior.table, lower, shape).sample())
    return parts


def _log_probs(
    distributions: Collection[HeadSubsets], parts: Collection[Tensor]
) -> list[Float[Tensor, sample * batch]]:
    """Log-probability of every block's gates, given those of lower blocks."""
    log_probs, lower = [], list[Tensor]()
    for distribution, part in zip(distributions, parts, strict=True):
        below = torch.cat(lower, -1) if lower else None
        subsets = HeadSubsets(distribution.table, below, part.shape[:-1])
        log_probs.append(subsets.log_prob(part))
        lower.append(part)
    return log_probs


@torch.no_grad()
def _baseline(model_trace: Trace) -> Float[Tensor, "*batch 1"]:
    """Log-likelihood of every sentence with every gate at its prior mean.

    The mean is marginal, for a baseline must not depend on the sample.
    """
    target = model_trace.nodes[TARGET]
    gated_pass: GatedPass = target["fn"].gated_pass
    log_prior = joint_table(target["fn"].prior)
    means = log_prior.exp() @ all_subsets(sum(gated_pass.heads), log_prior)
    gates = means.view(*(1,) * (2 + gated_pass.lower.particles), -1)
    return gated_pass.token_log_probs(gates, target["value"])[0].sum(-1, keepdim=True)
