"""Marginal distributions of each head's alignment."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from latentheads.latents.alignments.distribution import CategoricalParameters
from latentheads.latents.alignments.exact import block_log_probs, broadcast_sum
from latentheads.layers.numeric import exp


def head_marginals(
    parameters: Sequence[CategoricalParameters],
) -> Float[Tensor, "*batch head target key"]:
    """The marginal probability of every position for each head of all blocks, from the lowest."""
    if not any(block.pairs for block in parameters):
        return torch.cat([block.marginals for block in parameters], -2).transpose(-2, -3)
    joint = broadcast_sum(block_log_probs(parameters))
    heads = sum(len(block.heads) for block in parameters)
    dims = range(-heads, 0)
    log_marginals = [joint.logsumexp([d for d in dims if d != head]) for head in dims]
    return exp(torch.stack(log_marginals, -3))
