"""SpecAugment: frequency and time masking of speech in training.

Park et al. 2019, https://arxiv.org/abs/1904.08779, without time warping.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

Policy = Literal["none", "LB", "LD"]
"""The names of the paper."""


class SpecAugmentPolicy(NamedTuple):
    """Number and size of the masks.

    Attributes:
        frequency_masks: Number of frequency masks.
        max_bins: Maximum width of a frequency mask, F.
        time_masks: Number of time masks.
        max_frames: Maximum length of a time mask, T.
    """

    frequency_masks: int
    max_bins: int
    time_masks: int
    max_frames: int


POLICIES: dict[Policy, SpecAugmentPolicy] = {
    "none": SpecAugmentPolicy(0, 0, 0, 0),
    "LB": SpecAugmentPolicy(1, 27, 1, 100),
    "LD": SpecAugmentPolicy(2, 27, 2, 100),
}
"""The policies of the paper, for frames of 80 bins."""

BINS = 80
"""Number of bins that the policies' ``max_bins`` refer to."""

assert set(POLICIES) == set(get_args(Policy))


def apply_spec_augment(
    frames: Float[Tensor, "batch frame bin"],
    lengths: Int[Tensor, " batch"],
    policy: SpecAugmentPolicy,
) -> Float[Tensor, "batch frame bin"]:
    """Sets masked bins and frames to 0, the mean of normalised frames; each utterance separately.

    A time mask lies within its utterance. The width of frequency masks is scaled to the number of
    bins. Noise comes from torch's global generator.
    """
    bins = frames.shape[-1]
    widest = torch.full_like(lengths, policy.max_bins * bins // BINS)
    all_bins = torch.full_like(lengths, bins)
    masked = _sample_spans(policy.frequency_masks, widest, all_bins, bins).unsqueeze(-2)
    longest = lengths.clamp(max=policy.max_frames)
    masked = masked | _sample_spans(
        policy.time_masks, longest, lengths, frames.shape[-2]
    ).unsqueeze(-1)
    return frames.masked_fill(masked, 0.0)


class SpecAugment(nn.Module):
    """Masks utterances in training mode only; see :func:`apply_spec_augment`."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = POLICIES[policy]

    def forward(
        self, frames: Float[Tensor, "batch frame bin"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch frame bin"]:
        """Masks frames and bins."""
        if self.training and any(self.policy):
            return apply_spec_augment(frames, lengths, self.policy)
        return frames


def _sample_spans(
    num_spans: int, longest: Int[Tensor, " batch"], limit: Int[Tensor, " batch"], size: int
) -> Bool[Tensor, "batch position"]:
    """True within sampled spans, each of length 0 ... longest - 1, that end within a limit."""
    shape = (*longest.shape, num_spans)
    length = (torch.rand(shape, device=longest.device) * longest.unsqueeze(-1)).long()
    num_starts = limit.unsqueeze(-1) - length + 1
    start = (torch.rand(shape, device=longest.device) * num_starts).long()
    position = torch.arange(size, device=longest.device)
    in_span = (position >= start.unsqueeze(-1)) & (position < (start + length).unsqueeze(-1))
    return in_span.any(-2)
