"""Where each head of a word points, whatever the other heads and the other words do."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from latentheads.alignment.distribution import CategoricalParameters
from latentheads.alignment.exact import block_tables, sum_of
from latentheads.layers.numeric import exp

__all__ = ["head_marginals"]


def head_marginals(
    laws: Sequence[CategoricalParameters],
) -> Float[Tensor, "*batch head target key"]:
    """The probability of every position for each head of all blocks, from the lowest.

    Args:
        laws: A law of every block, from the lowest: priors or posteriors.
    """
    if not any(each.pairs for each in laws):
        return torch.cat([each.marginals for each in laws], -2).transpose(-2, -3)
    joint = sum_of(block_tables(laws))
    heads = sum(len(each.heads) for each in laws)
    dims = range(-heads, 0)
    found = [joint.logsumexp([d for d in dims if d != own]) for own in dims]
    return exp(torch.stack(found, -3))
