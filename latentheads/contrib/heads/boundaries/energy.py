r"""Words are loud and pauses are quiet: the energy of a sound between the boundaries of its words.

The energy of each position comes from one normal distribution within words and from another one
outside, both fitted to the sound. With :math:`\ell_i` the log-ratio of the two, the energy adds

.. math:: \sum_w \sum_{s_w < i < e_w} \ell_i = \sum_w C(e_w) - C(s_w),

where C is the sum up to a position: a term of each end and one of each start, so that the chain of
boundaries stays exact.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from latentheads.contrib.heads.word_attention import WordAttention

WEIGHT = 0.3
"""What the energy of a position counts: that of its neighbours is hardly other information.

It was chosen on the two speakers that digits are learned from, each tested on the other.
"""

MOST = 3.0
"""Largest log-ratio of a position."""

LEAST_DEVIATION = 0.1
"""Smallest standard deviation, as a share of the range: a pause may be digital silence."""

STEPS = 10
"""Steps of expectation-maximisation of the two distributions."""

REACH = 12.0
"""Largest offset, in positions."""

RANGE = 600.0
"""Largest difference of the sum at two positions: beyond it double precision has no number."""


def speech_log_ratio(energy: Float[Tensor, " position"]) -> Float[Tensor, " position"]:
    """The log-ratio of the energy of each position, within words to outside."""
    low, high = energy.quantile(0.05), energy.quantile(0.95)
    scaled = ((energy - low) / (high - low).clamp(min=1e-9))[:, None]
    mean, deviation, share = energy.new_tensor([[0.1, 0.8], [0.2, 0.2], [0.5, 0.5]])
    for _ in range(STEPS):
        log_density = -0.5 * ((scaled - mean) / deviation) ** 2 - deviation.log()
        posterior = (log_density + share.log()).softmax(1)
        counts = posterior.sum(0) + 1e-6
        mean = (posterior * scaled).sum(0) / counts
        variance = (posterior * (scaled - mean) ** 2).sum(0) / counts
        deviation = variance.sqrt().clamp(min=LEAST_DEVIATION)
        share = counts / counts.sum()
    log_density = -0.5 * ((scaled - mean) / deviation) ** 2 - deviation.log()
    ratio = (log_density[:, 1] - log_density[:, 0]).clamp(-MOST, MOST)
    # the wider of two normal distributions is the likelier one on both sides
    ratio = torch.where(scaled[:, 0] <= mean[0], -ratio.abs(), ratio)
    return torch.where(scaled[:, 0] >= mean[1], ratio.abs(), ratio)


def energy_scores(
    energy: Float[Tensor, " position"], offsets: Float[Tensor, " kind"]
) -> Float[Tensor, "kind position"]:
    """What the energy adds to the log-likelihood of a start, and of an end, at each position.

    Args:
        energy: The energy of each position of a sound.
        offsets: Positions by which the energy changes later than labels do, at starts and at ends.
    """
    total = _sum_up(energy)
    # a boundary is somewhere in its position
    middle = torch.arange(0.5, len(energy), dtype=energy.dtype)
    start, end = (_interpolate(total, middle + offset) for offset in offsets)
    return torch.stack([-start, end])


def energy_offsets(attentions: Sequence[WordAttention]) -> Float[Tensor, " kind"]:
    """The offsets under which the energy at labels is likeliest; 0 without labels.

    Between words without a pause no offset is the likeliest: the energy of the next word is taken
    for that of the last, up to the largest offset. Then it is 0 too.
    """
    grid = torch.arange(-REACH, REACH + 0.1, 0.5, dtype=torch.float64)
    scores = torch.zeros(2, len(grid), dtype=torch.float64)
    for attention in attentions:
        if attention.energy is None:
            continue
        total = _sum_up(attention.energy)
        for kind, (sign, labels) in enumerate(((-1, attention.starts), (1, attention.ends))):
            known = labels[labels.isfinite()]
            scores[kind] += sign * _interpolate(total, known + grid[:, None]).sum(-1)
    best = scores.argmax(1)
    is_largest = (best == 0) | (best == len(grid) - 1)
    return grid[best].masked_fill(is_largest, 0.0)


def _sum_up(energy: Float[Tensor, " position"]) -> Float[Tensor, " edge"]:
    """The sum of weighted log-ratios up to each edge of a position."""
    total = F.pad(WEIGHT * speech_log_ratio(energy).cumsum(0), (1, 0))
    extent = float(total.max() - total.min())
    return total * min(1.0, RANGE / max(extent, 1.0))


def _interpolate(values: Float[Tensor, " edge"], at: Tensor) -> Tensor:
    """Values between edges."""
    at = at.to(values).clamp(0, len(values) - 1)
    before = at.long().clamp(max=len(values) - 2)
    return values[before].lerp(values[before + 1], at - before)
