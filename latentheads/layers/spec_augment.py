"""SpecAugmentPolicy: hides bands of frequency and stretches of time while training.

Park et al. 2019, https://arxiv.org/abs/1904.08779; the time is not warped.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

__all__ = ["POLICIES", "Policy", "SpecAugmentPolicy", "apply_spec_augment"]

Policy = Literal["none", "LB", "LD"]
"""The names of the paper."""


class SpecAugmentPolicy(NamedTuple):
    """How much is hidden of an utterance.

    Attributes:
        bands: Bands of frequency.
        widest: Bins of a band, at most.
        stretches: Stretches of time.
        longest: Frames of a stretch, at most.
    """

    bands: int
    widest: int
    stretches: int
    longest: int


POLICIES: dict[Policy, SpecAugmentPolicy] = {
    "none": SpecAugmentPolicy(0, 0, 0, 0),
    "LB": SpecAugmentPolicy(1, 27, 1, 100),
    "LD": SpecAugmentPolicy(2, 27, 2, 100),
}
"""The policies of the paper, whose frames have 80 bins."""

BINS = 80
"""Bins of the frames that the widths are meant for."""

assert set(POLICIES) == set(get_args(Policy))


def apply_spec_augment(
    frames: Float[Tensor, "batch frame bin"],
    lengths: Int[Tensor, " batch"],
    policy: SpecAugmentPolicy,
) -> Float[Tensor, "batch frame bin"]:
    """Sets bands and stretches to 0, the mean of normalised frames; each utterance its own.

    A stretch lies within its utterance, and where that is short it is at most as long as the
    utterance. Bands are as wide in proportion where frames have another number of bins. Noise comes
    from torch's global generator.

    Args:
        frames: Normalised.
        lengths: Frames of each utterance.
        policy: How much is hidden.
    """
    bins = frames.shape[-1]
    widest = torch.full_like(lengths, policy.widest * bins // BINS)
    all_bins = torch.full_like(lengths, bins)
    masked = _sample_spans(policy.bands, widest, all_bins, bins).unsqueeze(-2)
    longest = lengths.clamp(max=policy.longest)
    masked = masked | _sample_spans(policy.stretches, longest, lengths, frames.shape[-2]).unsqueeze(
        -1
    )
    return frames.masked_fill(masked, 0.0)


class SpecAugment(nn.Module):
    """Hides parts of utterances while training, and nothing in evaluation mode; see :func:`apply_spec_augment`.

    Args:
        policy: How much is hidden.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = POLICIES[policy]

    def forward(
        self, frames: Float[Tensor, "batch frame bin"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch frame bin"]:
        """Hides some of the frames."""
        if self.training and any(self.policy):
            return apply_spec_augment(frames, lengths, self.policy)
        return frames


def _sample_spans(
    num_spans: int, longest: Int[Tensor, " batch"], limit: Int[Tensor, " batch"], size: int
) -> Bool[Tensor, "batch place"]:
    """True within spans that are drawn, each of length 0 ... longest - 1, below an end."""
    shape = (*longest.shape, num_spans)
    length = (torch.rand(shape, device=longest.device) * longest.unsqueeze(-1)).long()
    num_starts = limit.unsqueeze(-1) - length + 1
    start = (torch.rand(shape, device=longest.device) * num_starts).long()
    position = torch.arange(size, device=longest.device)
    in_span = (position >= start.unsqueeze(-1)) & (position < (start + length).unsqueeze(-1))
    return in_span.any(-2)
