"""Samples of the alignments of a pass, for objectives that do not sum over all of them.

Further samples come from the distributions of the same pass: they cost one softmax for each word,
and no further pass of the network.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from pyro.poutine import Trace
from torch import Tensor

from latentheads.latents.alignments.distribution import Alignments, sample_blocks, word_log_probs
from latentheads.latents.alignments.enumeration import (
    AlignmentEnumeration,
    get_posterior_sites,
    get_tied_sites,
)
from latentheads.latents.sampled import AlignmentSamples
from latentheads.names import TARGET


def sample_alignments(
    model_trace: Trace, guide_trace: Trace, num_samples: int = 1
) -> AlignmentSamples:
    """Sample all alignments of a pass from its guide; a single sample is that of the pass.

    Args:
        model_trace: The model's trace, with alignments.
        guide_trace: The guide's trace; a block without a site keeps its prior.
        num_samples: Number of samples, for each particle if particles are vectorised.
    """
    target = model_trace.nodes[TARGET]
    posterior_sites = get_posterior_sites(model_trace, guide_trace)
    posteriors = [site["fn"] for site in posterior_sites.values()]
    priors = [model_trace.nodes[name]["fn"] for name in posterior_sites]
    valid = posteriors[0].valid.expand(*posteriors[0].batch_shape, -1)
    if num_samples == 1:
        positions = torch.cat([site["value"] for site in posterior_sites.values()], -1).unsqueeze(0)
    else:
        positions = _sample_blocks(posteriors, num_samples)
    log_likelihood = target["fn"].given(positions).token_log_prob(target["value"])
    tied = [posterior_sites[name]["fn"] for name in get_tied_sites(model_trace, posterior_sites)]
    return AlignmentSamples(
        log_likelihood,
        word_log_probs([distribution.parameters for distribution in priors], valid, positions),
        word_log_probs([distribution.parameters for distribution in posteriors], valid, positions),
        any(distribution.parameters.chained for distribution in (*posteriors, *priors)),
        word_log_probs([distribution.parameters for distribution in tied], valid, positions)
        if tied
        else 0.0,
    )


def _sample_blocks(
    posteriors: Sequence[Alignments], num_samples: int
) -> Int[Tensor, "sample *batch target head"]:
    """Sample all blocks; every particle has its own samples, even of a shared distribution."""
    shape, inner = posteriors[0].batch_shape, posteriors[0].parameters.scores.shape[:-3]
    particles = shape[: len(shape) - len(inner)]
    parameters = [posterior.parameters for posterior in posteriors]
    positions = sample_blocks(parameters, posteriors[0].valid, num_samples * particles.numel())
    return positions.view(num_samples, *particles, *positions.shape[1:])


@torch.no_grad()
def soft_log_prob(model_trace: Trace) -> Float[Tensor, "*batch target"]:
    """Log-probability of every word under soft attention by the heads' prior scores."""
    target = model_trace.nodes[TARGET]
    return target["fn"].alignment_pass.soft_log_prob(target["value"])


def kl_enumeration(model_trace: Trace, guide_trace: Trace) -> AlignmentEnumeration:
    """Enumeration of a pass without emissions: enough for the KL of every block."""
    alignment_pass = model_trace.nodes[TARGET]["fn"].alignment_pass
    posterior_sites = get_posterior_sites(model_trace, guide_trace)
    posterior = [site["fn"].parameters for site in posterior_sites.values()]
    inference = alignment_pass.inference_from(
        alignment_pass.priors[0].scores[..., 0, :]
    )  # dummy emissions
    return AlignmentEnumeration(
        inference, posterior, list(posterior_sites), get_tied_sites(model_trace, posterior_sites)
    )
