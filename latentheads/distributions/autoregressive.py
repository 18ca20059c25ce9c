"""Autoregressive distributions of heads: each head given the heads before it.

Kingma et al. 2016 (inverse), https://arxiv.org/abs/1606.04934; Papamakarios, Pavlakou and Murray
2017 (masked), https://arxiv.org/abs/1705.07057.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions.kl import register_kl

from latentheads.distributions.heads import (
    HeadContext,
    HeadVariable,
    linear_over_heads,
    sum_over_latent_pairs,
)
from latentheads.distributions.normal import (
    HALF_LOG_2PI,
    NormalHeads,
    log_of_scale,
    sum_broadcast_over_pairs,
)

Conditioner = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Maps ``head query key`` to a shift and a log-scale; those of head h depend on heads before h."""


def _mix_heads(
    factor: Float[Tensor, "head head"], values: Float[Tensor, "*batch head query key"]
) -> Float[Tensor, "*batch head query key"]:
    """Multiplies the heads of every pair by a matrix."""
    with torch.autocast(values.device.type, enabled=False):
        return linear_over_heads(factor, values.flatten(-2)).unflatten(-1, values.shape[-2:])


class CholeskyHeads(HeadVariable):
    r"""The linear case: ``z = location + L noise`` with L lower triangular.

    Equal in distribution to :math:`z_h \mid z_{<h}` with a mean linear in :math:`z_{<h}`; the
    covariance over heads is :math:`L L^\top`, at every pair the same.
    """

    def __init__(
        self,
        location: Float[Tensor, "*batch head query key"],
        context: HeadContext,
        factor: Float[Tensor, "head head"],
    ) -> None:
        self.factor = factor.to(location.dtype)
        super().__init__(location, context)

    def _from_noise(self, noise: Tensor) -> Tensor:
        return self.location + _mix_heads(self.factor, noise)

    def _log_density(self, value: Tensor, noise: Tensor | None) -> Float[Tensor, "*batch"]:
        if noise is None:
            noise = self._whiten(value - self.location)
        mask = self.context.mask
        volume = self.factor.diagonal().log().sum() + self.event_shape[0] * HALF_LOG_2PI
        return -0.5 * sum_over_latent_pairs(noise.square(), mask) - volume * mask.pairs

    def _whiten(self, residual: Tensor) -> Tensor:
        flat = torch.linalg.solve_triangular(self.factor, residual.flatten(-2), upper=False)
        return flat.unflatten(-1, residual.shape[-2:])

    def _with_location(self, location: Tensor) -> HeadVariable:
        return type(self)(location, self.context, self.factor)

    @property
    def mean(self) -> Tensor:
        """The location."""
        return self.location

    @property
    def variance(self) -> Tensor:
        """The diagonal of ``L L^T``, at every pair."""
        return self.factor.square().sum(-1)[:, None, None].expand(self.location.shape)


class _ConditionedHeads(HeadVariable):
    """The non-linear cases: shift and scale are functions of the heads before.

    Args:
        location: The logits at zero shift; not the mean.
        context: The context that the heads are conditioned on.
        conditioner: Computes the shift m and the log-scale r.
    """

    def __init__(
        self,
        location: Float[Tensor, "*batch head query key"],
        context: HeadContext,
        conditioner: Conditioner,
    ) -> None:
        self.conditioner = conditioner
        super().__init__(location, context)

    def _with_location(self, location: Tensor) -> HeadVariable:
        return type(self)(location, self.context, self.conditioner)

    def _sum_log_density(self, whitened: Tensor, log_scale: Tensor) -> Float[Tensor, "*batch"]:
        return sum_over_latent_pairs(
            -0.5 * whitened.square() - log_scale - HALF_LOG_2PI, self.context.mask
        )


class InverseHeads(_ConditionedHeads):
    r"""Inverse autoregressive heads: shift and scale depend on the noise of the heads before.

    .. math:: z_h = \mu_h + m_h(\epsilon_{<h}) + e^{r_h(\epsilon_{<h})} \epsilon_h

    Sampling takes one pass, and so does the log-probability of its own sample, whose noise is
    cached. Any other value is inverted head by head.
    """

    def _from_noise(self, noise: Tensor) -> Tensor:
        shift, self._log_scale = self.conditioner(noise)
        return self.location + shift + self._log_scale.exp() * noise

    def _log_density(self, value: Tensor, noise: Tensor | None) -> Float[Tensor, "*batch"]:
        if noise is not None:
            return self._sum_log_density(noise, self._log_scale)
        noise = torch.zeros_like(value)
        # head h needs the noise of heads before it: after k rounds that of k heads is right
        for _ in range(self.event_shape[0]):
            shift, log_scale = self.conditioner(noise)
            noise = (value - self.location - shift) * (-log_scale).exp()
        return self._sum_log_density(noise, self.conditioner(noise)[1])


class MaskedHeads(_ConditionedHeads):
    r"""Masked autoregressive heads: shift and scale depend on the logits of the heads before.

    .. math:: z_h = \mu_h + m_h(z_{<h} - \mu_{<h}) + e^{r_h(z_{<h} - \mu_{<h})} \epsilon_h

    The log-probability of any value takes one pass; sampling takes one pass per head.
    """

    def _from_noise(self, noise: Tensor) -> Tensor:
        residual = torch.zeros_like(noise)
        # as above: after k rounds the first k heads are right
        for _ in range(self.event_shape[0]):
            shift, log_scale = self.conditioner(residual)
            residual = shift + log_scale.exp() * noise
        return self.location + residual

    def _log_density(self, value: Tensor, noise: Tensor | None) -> Float[Tensor, "*batch"]:
        residual = value - self.location
        shift, log_scale = self.conditioner(residual)
        return self._sum_log_density((residual - shift) * (-log_scale).exp(), log_scale)


@register_kl(CholeskyHeads, NormalHeads)
def _kl_cholesky_normal(q: CholeskyHeads, p: NormalHeads) -> Float[Tensor, "*batch"]:
    r"""KL from a full-covariance Gaussian to a diagonal one, summed over latent pairs.

    .. math:: \tfrac12 \sum_h \left[ \frac{(L L^\top)_{hh} + (m_h - \mu_h)^2}{\sigma_h^2} - 1
              - 2 \log L_{hh} + 2 \log \sigma_h \right]
    """
    mask, shape = q.context.mask, q.location.shape
    marginal = q.factor.square().sum(-1)[:, None, None]
    log_diagonal = q.factor.diagonal().log()[:, None, None]
    shift = (q.location - p.location) / p.scale
    scale_terms = 0.5 * (marginal / p.scale**2 - 1) - log_diagonal + log_of_scale(p.scale)
    return 0.5 * sum_over_latent_pairs(shift.square(), mask) + sum_broadcast_over_pairs(
        scale_terms, shape, mask
    )
