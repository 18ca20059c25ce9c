"""Expectations over all draws of a few alignments, with nothing drawn."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from itertools import combinations_with_replacement

import torch
from torch import Tensor

from latentheads.latents.sampled import AlignmentSamples


def expectation(
    estimator: Callable[[AlignmentSamples], Tensor], single: AlignmentSamples, number: int
) -> Tensor:
    """The mean of an estimator over all draws of some alignments of one sentence.

    Its gradient is the mean of the estimator's. Draws that differ in their order alone have one
    value, so each is computed once and counted as often as it occurs.

    Args:
        estimator: A function of samples, whatever their order.
        single: Every alignment of the sentence once, along the batch.
        number: How many alignments a draw has.
    """
    alignments = len(single.log_guide[0])
    draws = list(combinations_with_replacement(range(alignments), number))
    ways = [
        math.lgamma(number + 1) - sum(math.lgamma(n + 1) for n in Counter(draw).values())
        for draw in draws
    ]
    places = torch.tensor(draws).T
    samples = AlignmentSamples(
        single.log_likelihood[0][places],
        single.log_prior[0][places],
        single.log_guide[0][places],
        single.chained,
        single.log_tied[0][places] if isinstance(single.log_tied, Tensor) else single.log_tied,
    )
    log_chance = torch.tensor(ways, dtype=torch.float64) + samples.log_guide.sum((0, -1)).detach()
    assert math.isclose(log_chance.exp().sum().item(), 1, rel_tol=1e-9)
    return (log_chance.exp() * estimator(samples)).sum()
