r"""Gates of heads: the Hard Concrete distribution of Louizos, Welling and Kingma (2018).

https://arxiv.org/abs/1712.01312

With a location :math:`\log\alpha`, a temperature :math:`\beta` and an interval
:math:`(\gamma, \zeta)` that reaches beyond [0, 1],

.. math:: s = \mathrm{sigmoid}((\mathrm{logit}\,u + \log\alpha) / \beta), \quad
          z = \min(1, \max(0, \gamma + (\zeta - \gamma) s)), \quad u \sim U(0, 1).

So z is 0 or 1 with positive probability, and has a density in between.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import constraints
from torch.distributions.kl import register_kl
from torch.nn import functional as F

from latentheads.latents.active_heads import Selection
from latentheads.layers.numeric import as_tensor_like

LOW, HIGH = -0.1, 1.1
"""The interval of Louizos et al., and of the code of Voita et al."""

NODES, WEIGHTS = np.polynomial.legendre.leggauss(32)


class HardConcrete(Selection):
    r"""Independent gates, one per head.

    Prior and posterior share their slab: the distribution of z given z > 0 is the posterior's in
    both, and the prior determines only the probability that a gate is open. Then

    .. math:: \mathrm{KL}(q \| p) = \sum_h q_h \log\frac{q_h}{\pi_h}
              + (1 - q_h) \log\frac{1 - q_h}{1 - \pi_h}, \quad q_h = q(z_h > 0),

    and densities are taken with respect to the point 0 and that slab. A prior
    :math:`\mathrm{logit}\,\pi = -\lambda` makes this the :math:`L_0` penalty
    :math:`\lambda \sum_h q_h`, less the entropy of open and closed.

    Args:
        logits: :math:`\log\alpha` of every gate.
        temperature: :math:`\beta`.
    """

    support = constraints.independent(constraints.unit_interval, 1)

    def __repr__(self) -> str:
        probabilities = " ".join(f"{value:.3f}" for value in self.open.flatten().tolist())
        return f"HardConcrete(open {probabilities})"

    @classmethod
    def with_open(
        cls, logit: Float[Tensor, "*batch candidate"], temperature: float
    ) -> HardConcrete:
        """Makes gates that are open with probability ``sigmoid(logit)``."""
        return cls(logit + temperature * math.log(-LOW / HIGH), temperature)

    @property
    def open_logit(self) -> Float[Tensor, "*batch candidate"]:
        r"""``logit P(z > 0)``, :math:`\log\alpha - \beta \log(-\gamma / \zeta)`."""
        return self.logits - self.temperature * math.log(-LOW / HIGH)

    @property
    def open(self) -> Float[Tensor, "*batch candidate"]:
        """``P(z > 0)``."""
        return self.open_logit.sigmoid()

    @property
    def mean(self) -> Float[Tensor, "*batch candidate"]:
        r""":math:`E z = \int_0^1 P(z > v) dv`, by quadrature."""
        nodes = as_tensor_like(0.5 * (NODES + 1), self.logits)
        weights = as_tensor_like(0.5 * WEIGHTS, self.logits)
        odds = ((nodes - LOW) / (HIGH - nodes)).log()
        return ((self.logits[..., None] - self.temperature * odds).sigmoid() * weights).sum(-1)

    @property
    def mode(self) -> Float[Tensor, "*batch candidate"]:
        r"""The gate at test time: without noise and temperature, exactly 0 or 1 far from 0.

        .. math:: \min(1, \max(0, \gamma + (\zeta - \gamma)\,\mathrm{sigmoid}(\log\alpha)))
        """
        return _stretch_and_clamp(self.logits.sigmoid())

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        """Samples gates, reparameterised."""
        logits = self.logits.expand(self._extended_shape(sample_shape))
        noise = torch.rand(logits.shape, dtype=logits.dtype, device=logits.device).logit()
        return _stretch_and_clamp(((noise + logits) / self.temperature).sigmoid())

    def log_prob(self, value: Float[Tensor, "*batch candidate"]) -> Float[Tensor, "*batch"]:
        """Log-probability of which gates are open: the slab is the same in prior and posterior.

        Raises:
            ValueError: A gradient is required. Whether a gate is open is a step function of the
                location, so that a sampled KL has a wrong gradient; the closed form has the right
                one.
        """
        if torch.is_grad_enabled() and self.logits.requires_grad:
            raise ValueError(
                "gates are learned by the closed form of their KL alone: in a training use kl "
                "analytic, in Pyro's SVI Head_ELBO(analytic=True) under "
                "pyro.validation_enabled(False)"
            )
        is_open = (value > 0).to(self.open_logit)
        return (is_open * self.open_logit - F.softplus(self.open_logit)).sum(-1)

    def _with_logits(self, logits: Tensor) -> HardConcrete:
        return HardConcrete(logits, self.temperature)


def _stretch_and_clamp(s: Tensor) -> Tensor:
    stretched: Tensor = LOW + (HIGH - LOW) * s
    return stretched.clamp(0, 1)


@register_kl(HardConcrete, HardConcrete)
def _kl_hard_concrete(q: HardConcrete, p: HardConcrete) -> Float[Tensor, "*batch"]:
    """The KL of which gates are open; the slab is shared."""
    expected_shift = q.open * (q.open_logit - p.open_logit)
    return (expected_shift - F.softplus(q.open_logit) + F.softplus(p.open_logit)).sum(-1)
