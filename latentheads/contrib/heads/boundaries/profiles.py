r"""Profiles: where a head attends, relative to the boundary of the word that is predicted.

While word :math:`w` is predicted head :math:`h` attends to position :math:`i` with weight
:math:`a_{hw}(i)`, which counts as :math:`\kappa\, a_{hw}(i)` samples. With probability
:math:`\rho_h` the head follows the word, and every sample comes from

.. math:: (1 - \beta_h)\, \varphi_h(i - b_w) + \beta_h / T,

its profile around the boundary :math:`b_w` and a uniform background over the :math:`T` positions;
otherwise all samples are background. A profile is a mixture of narrow bumps, so that few words
suffice and expectation-maximisation stays exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from latentheads.contrib.heads.word_attention import WordAttention

FAST = 64
"""Sizes of Fourier transforms are multiples of it: at a prime one takes five times as long."""


@dataclass(frozen=True)
class Profiles:
    """The profiles of some heads, for each kind of boundary.

    Attributes:
        weights: Weights of the bumps of each profile, one centred at each lag.
        background: Share of samples that is background though the head follows the word.
        follows: Probability that the head follows a word.
        width: Standard deviation of a bump, in positions.
        counts: Samples that the attention of one word counts as.
    """

    weights: Float[Tensor, "kind head lag"]
    background: Float[Tensor, "kind head"]
    follows: Float[Tensor, "kind head"]
    width: float
    counts: float

    @property
    def reach(self) -> int:
        """The largest lag."""
        return self.weights.shape[-1] // 2

    @property
    def lags(self) -> Float[Tensor, " lag"]:
        """All lags, from the least: positions of attention less that of the boundary."""
        return torch.arange(-self.reach, self.reach + 1).to(self.weights)

    @property
    def bumps(self) -> Float[Tensor, "bump lag"]:
        """The distribution of lags in each bump."""
        distance = self.lags - self.lags[:, None]
        return (-0.5 * (distance / self.width) ** 2).softmax(-1)

    @property
    def densities(self) -> Float[Tensor, "kind head lag"]:
        """The profile of each head, without background."""
        return self.weights @ self.bumps

    def select(self, kinds: slice, chosen: Bool[Tensor, " head"]) -> Profiles:
        """The profiles of some heads around some kinds of boundaries."""
        return replace(
            self,
            weights=self.weights[kinds, chosen],
            background=self.background[kinds, chosen],
            follows=self.follows[kinds, chosen],
        )

    def log_ratios(self, attention: WordAttention) -> Float[Tensor, "kind head word position"]:
        """Log-likelihood of one sample of a word for each boundary position, less background."""
        background = self.background[..., None]
        density = (1 - background) * self.densities * attention.positions + background
        outside = background.log()
        inside = _sum_lagged(attention.weights, density.log() - outside)
        return inside + attention.weights.sum(-1)[None, ..., None] * outside[..., None]

    def emissions(self, attention: WordAttention) -> Float[Tensor, "kind head word position"]:
        """Log-likelihood of the attention of each word, less that of background alone."""
        follows = self.follows[..., None, None]
        return torch.logaddexp(
            follows.log() + self.counts * self.log_ratios(attention), (-follows).log1p()
        )

    def head_information(self, attention: WordAttention, marginals: Tensor) -> Tensor:
        """Nats of information of the attention of each head alone on each boundary.

        Args:
            attention: Attention of the same heads.
            marginals: Posterior of the boundaries, as (kind, word, position).
        """
        emissions = self.emissions(attention)
        # the log posterior given this head, less its flat prior: expected under the marginals
        normalised = emissions.log_softmax(-1) + torch.tensor(attention.positions).log()
        return (normalised * marginals[:, None]).sum(-1)


def make_profiles(
    kinds: int, heads: int, reach: int, width: float = 1.5, counts: float = 1.0
) -> Profiles:
    """Flat profiles, in double precision.

    Args:
        kinds: Kinds of boundaries.
        heads: Number of heads.
        reach: The largest lag, in positions.
        width: Standard deviation of a bump, in positions.
        counts: Samples that the attention of one word counts as.
    """
    lags = 2 * reach + 1
    shape = (kinds, heads)
    return Profiles(
        torch.full((*shape, lags), 1 / lags, dtype=torch.float64),
        torch.full(shape, 0.2, dtype=torch.float64),
        torch.full(shape, 0.9, dtype=torch.float64),
        width,
        counts,
    )


@dataclass
class ProfileCounts:
    """Expected samples of bumps and background, and expected words that heads follow.

    Attributes:
        bumps: Samples of each bump of a profile.
        background: Samples of background where the head follows.
        followed: Words that the head follows.
        words: Words.
    """

    bumps: Tensor
    background: Tensor
    followed: Tensor
    words: float

    def add(self, profiles: Profiles, attention: WordAttention, marginals: Tensor) -> None:
        """Adds an example.

        Args:
            profiles: The profiles under which samples are attributed.
            attention: The attention of the example.
            marginals: Posterior of its boundaries, as (kind, word, position).
        """
        follows = profiles.follows[..., None, None]
        ratios = follows.log() + profiles.counts * profiles.log_ratios(attention)
        is_following = (ratios - torch.logaddexp(ratios, (-follows).log1p())).exp()
        at = is_following * marginals[:, None]
        self.followed = self.followed + at.sum((-2, -1))
        self.words += marginals.shape[1]
        lagged = _lagged_mass(at, attention.weights, profiles.reach)
        mass = (at.sum(-1) * attention.weights.sum(-1)).sum(-1)
        # of the samples at a lag each bump has its share, and so has the background
        background = profiles.background[..., None]
        parts = (1 - background) * attention.positions * profiles.densities
        total = parts + background
        within = (lagged / total) @ profiles.bumps.mT * profiles.weights
        within = within * (1 - background) * attention.positions
        self.bumps = self.bumps + profiles.counts * within
        outside = profiles.counts * (mass - within.sum(-1))
        self.background = self.background + outside


def _transform_size(positions: int, reach: int) -> int:
    """A fast size of a transform, in which what wraps around is beyond the reach."""
    return -(-(positions + 2 * reach) // FAST) * FAST


def _sum_lagged(
    weights: Float[Tensor, "head word position"], kernel: Float[Tensor, "kind head lag"]
) -> Float[Tensor, "kind head word position"]:
    """For each position the attention around it, each lag times its value in the kernel."""
    positions, reach = weights.shape[-1], kernel.shape[-1] // 2
    size = _transform_size(positions, reach)
    shifted = F.pad(kernel, (0, size - kernel.shape[-1])).roll(-reach, -1)[:, :, None]
    spectrum = torch.fft.rfft(weights, size) * torch.fft.rfft(shifted).conj()
    return torch.fft.irfft(spectrum, size)[..., :positions]


def _lagged_mass(
    at: Float[Tensor, "kind head word position"], weights: Tensor, reach: int
) -> Float[Tensor, "kind head lag"]:
    """Attention at each lag from a boundary, in expectation over boundaries."""
    size = _transform_size(weights.shape[-1], reach)
    spectrum = torch.fft.rfft(at, size).conj() * torch.fft.rfft(weights, size)
    correlation = torch.fft.irfft(spectrum.sum(2), size).clamp(min=0)  # 0 up to rounding
    return torch.cat([correlation[..., -reach:], correlation[..., : reach + 1]], -1)


def empty_counts(profiles: Profiles) -> ProfileCounts:
    """Counts of no example."""
    zeros = torch.zeros_like(profiles.background)
    return ProfileCounts(torch.zeros_like(profiles.weights), zeros, zeros, 0.0)


def fit_profiles(profiles: Profiles, counts: ProfileCounts, prior: float = 1.0) -> Profiles:
    """The profiles of the highest posterior, given expected counts.

    Args:
        profiles: The profiles before.
        counts: Expected counts.
        prior: Samples that the prior counts as: flat over lags, half of them background.
    """
    lags = profiles.weights.shape[-1]
    bumps = counts.bumps + prior / lags
    within, outside = bumps.sum(-1), counts.background + prior
    return Profiles(
        bumps / within[..., None],
        outside / (within + outside),
        (counts.followed + prior) / (counts.words + 2 * prior),
        profiles.width,
        profiles.counts,
    )
