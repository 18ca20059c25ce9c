"""Marginal distributions of each head's alignment."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from latentheads.latents.alignments.distribution import NOWHERE, CategoricalParameters
from latentheads.latents.alignments.exact import block_log_probs, broadcast_sum
from latentheads.layers.numeric import exp


def head_marginals(
    parameters: Sequence[CategoricalParameters],
) -> Float[Tensor, "*batch head target key"]:
    """The marginal probability of every position for each head of all blocks, from the lowest."""
    if any(block.pairs for block in parameters):
        return exp(_sum_over_others(parameters))
    return torch.cat([block.marginals for block in parameters], -2).transpose(-2, -3)


def log_head_marginals(
    parameters: Sequence[CategoricalParameters],
) -> Float[Tensor, "*batch head target key"]:
    """The logarithm of :func:`head_marginals`; it stays finite where a probability underflows."""
    if any(block.pairs for block in parameters):
        return _sum_over_others(parameters).clamp_min(NOWHERE)
    return head_marginals(parameters).log().clamp_min(NOWHERE)


def _sum_over_others(
    parameters: Sequence[CategoricalParameters],
) -> Float[Tensor, "*batch head target key"]:
    """Log-probabilities of every head's positions, summed over those of all other heads."""
    joint = broadcast_sum(block_log_probs(parameters))
    heads = sum(len(block.heads) for block in parameters)
    dims = range(-heads, 0)
    return torch.stack([joint.logsumexp([d for d in dims if d != head]) for head in dims], -3)
