"""Heads that are independent given their location: normal, and the delta (no noise)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions.kl import register_kl

from latentheads.checks import check_positive
from latentheads.distributions.heads import (
    HeadContext,
    HeadVariable,
    is_expandable,
    sum_over_latent_pairs,
)
from latentheads.mask import PairMask

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)

Scale = float | Tensor
"""A positive number, or a tensor that broadcasts to ``head query key``."""


def sum_broadcast_over_pairs(
    term: Scale, shape: Sequence[int], mask: PairMask
) -> Float[Tensor, "*batch"]:
    """Sums a term that broadcasts to ``head query key`` over heads and latent pairs.

    A term that is constant over the pairs, ``head 1 1`` or a number, costs no elementwise pass.
    Particle dimensions in front, which the mask does not have, are kept.
    """
    if not isinstance(term, Tensor):
        result = shape[-3] * term * mask.pairs
    elif term.ndim == 0 or term.shape[-2:] == (1, 1):
        result = term.expand(*term.shape[:-3], shape[-3], 1, 1).sum((-3, -2, -1)) * mask.pairs
    else:
        result = sum_over_latent_pairs(term.expand(shape), mask)
    return result.expand(shape[:-3])


def _check_scale(scale: Scale, location: Tensor) -> None:
    """Checks that a number is positive and that a tensor broadcasts; not the tensor's values."""
    if not isinstance(scale, Tensor):
        check_positive("scale", scale)
    elif not is_expandable(scale.shape, location.shape):
        raise ValueError(
            f"scale must spread over heads, queries and keys {tuple(location.shape[-3:])}, such as "
            f"{(location.shape[-3], 1, 1)}, got {tuple(scale.shape)}"
        )


def log_of_scale(scale: Scale) -> Scale:
    """The logarithm of a number or of a tensor."""
    return scale.log() if isinstance(scale, Tensor) else math.log(scale)


class NormalHeads(HeadVariable):
    """``z ~ N(location, scale^2)``, independent for every head and pair.

    Args:
        location: The mean logits.
        context: The context that the heads are conditioned on.
        scale: The standard deviation.
        squares: Squares of location minus scores, summed over the heads of every pair, if they are
            already computed: the KL to a prior at the scores then needs no copy of the location.
    """

    def __init__(
        self,
        location: Float[Tensor, "*batch head query key"],
        context: HeadContext,
        scale: Scale = 1.0,
        squares: Float[Tensor, "*batch query key"] | None = None,
    ) -> None:
        _check_scale(scale, location)
        self.scale = scale
        self.squares = squares
        super().__init__(location, context)

    def _from_noise(self, noise: Tensor) -> Tensor:
        if isinstance(self.scale, Tensor):
            return torch.addcmul(self.location, self.scale, noise)
        return torch.add(self.location, noise, alpha=self.scale)

    def _log_density(self, value: Tensor, noise: Tensor | None) -> Float[Tensor, "*batch"]:
        residual = (value - self.location) / self.scale if noise is None else noise
        mask = self.context.mask
        constant = HALF_LOG_2PI + log_of_scale(self.scale)
        return -0.5 * sum_over_latent_pairs(residual.square(), mask) - sum_broadcast_over_pairs(
            constant, self.location.shape, mask
        )

    def _with_location(self, location: Tensor) -> HeadVariable:
        return type(self)(location, self.context, self.scale)

    @property
    def mean(self) -> Tensor:
        """The location."""
        return self.location

    @property
    def variance(self) -> Tensor:
        """The square of the scale, at every pair."""
        return (
            torch.as_tensor(self.scale, device=self.location.device)
            .square()
            .expand(self.location.shape)
        )


class DeltaHeads(HeadVariable):
    """Deterministic heads: all mass at the location. Its only posterior is itself."""

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        """Returns the location; where the prior samples pairs without a latent, noise is needed."""
        if self._prior_elsewhere is not None:
            return super().rsample(sample_shape)
        return self.location.expand(self._extended_shape(sample_shape))

    def _from_noise(self, noise: Tensor) -> Tensor:
        return self.location.expand(noise.shape)

    def _log_density(self, value: Tensor, noise: Tensor | None) -> Float[Tensor, "*batch"]:
        misses = sum_over_latent_pairs(
            (value != self.location).to(self.location.dtype), self.context.mask
        )
        return torch.where(misses == 0, 0.0, -torch.inf).to(self.location.dtype)

    def _with_location(self, location: Tensor) -> HeadVariable:
        return type(self)(location, self.context)

    @property
    def mean(self) -> Tensor:
        """The location."""
        return self.location

    @property
    def variance(self) -> Tensor:
        """Zero at every pair."""
        return torch.zeros_like(self.location)


@register_kl(NormalHeads, NormalHeads)
def _kl_normal_normal(q: NormalHeads, p: NormalHeads) -> Float[Tensor, "*batch"]:
    r"""Sums the elementwise KL over heads and latent pairs.

    .. math:: \log(\sigma_0/s) + (s^2 + (m - \mu)^2) / (2 \sigma_0^2) - 1/2
    """
    ratio = q.scale / p.scale
    scale_terms = sum_broadcast_over_pairs(_scale_term(ratio), q.location.shape, q.context.mask)
    shift = _sum_of_squared_shifts(q, p)
    return scale_terms if shift is None else scale_terms + 0.5 * shift


def _scale_term(ratio: Scale) -> Scale:
    """The KL of every head and pair where the means are equal."""
    return 0.5 * (ratio**2 - 1) - log_of_scale(ratio)


@dataclass(frozen=True, slots=True)
class PartsOfKL:
    """What the KL of a block is the sum of, while those of all blocks are yet to be sampled.

    Attributes:
        ratio: The posterior's scale over the prior's, of every head.
        shift: The squared distance of the means in units of the prior's scale, summed over heads
            and latent pairs; None where the means are equal.
        pairs: Pairs of each sentence that carry a latent.
    """

    ratio: Float[Tensor, head]
    shift: Float[Tensor, "*batch"] | None
    pairs: Float[Tensor, "*batch"]


def parts_of_kl(q: Any, p: Any) -> PartsOfKL | None:
    """The parts of a closed form; None unless both are normal, q with one scale for each head."""
    if not (type(q) is NormalHeads and type(p) is NormalHeads and isinstance(q.scale, Tensor)):
        return None
    heads = q.location.shape[-3]
    if q.scale.shape != (heads, 1, 1) or isinstance(p.scale, Tensor):
        return None
    scale = q.scale.flatten()
    ratio = scale if p.scale == 1.0 else scale / p.scale
    pairs = q.context.mask.pairs.expand(q.batch_shape)
    return PartsOfKL(ratio, _sum_of_squared_shifts(q, p), pairs)


def stack_kls(parts: Sequence[PartsOfKL]) -> Float[Tensor, block * batch]:
    """The KLs of blocks of as many heads: one operation for all where each had its own."""
    ratios = torch.stack([part.ratio for part in parts])
    pairs = torch.stack([part.pairs for part in parts])
    scale_terms = cast(Tensor, _scale_term(ratios)).sum(-1)
    kls = scale_terms.view(-1, *(1,) * (pairs.ndim - 1)) * pairs
    if all(part.shift is None for part in parts):
        return kls
    none = torch.zeros_like(parts[0].pairs)
    shifts = torch.stack([none if part.shift is None else part.shift for part in parts])
    return torch.add(kls, shifts, alpha=0.5)


def _sum_of_squared_shifts(q: NormalHeads, p: NormalHeads) -> Float[Tensor, "*batch"] | None:
    """The squared distance of the means in units of the prior's scale; None if they are equal."""
    if q.location is p.location:
        return None
    return (_squared_shift(q, p) * q.context.mask.latent).sum((-1, -2))


def _squared_shift(q: NormalHeads, p: NormalHeads) -> Float[Tensor, "*batch query key"]:
    r""":math:`\sum_h (m_h - \mu_h)^2 / \sigma_{0h}^2` of every pair."""
    scalar_scale = not isinstance(p.scale, Tensor)
    if q.squares is not None and scalar_scale and p.location is q.context.scores:
        return q.squares if p.scale == 1.0 else q.squares / p.scale**2
    shift = q.location - p.location
    if isinstance(p.scale, Tensor) or p.scale != 1.0:
        shift = shift / p.scale
    return shift.square().sum(-3)
