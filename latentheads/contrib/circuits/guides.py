r"""Pyro's model and guides of the subset of heads that a task needs.

The guides are those of the library's heads, without an encoder: the subset is one for all prompts.

.. math:: \mathrm{logit}\, q(b_h = 1 \mid b_{<h}) = a_h + \sum_{j < h} W_{hj} b_j

with W = 0 (mean-field), W over earlier heads of a layer (autoregressive), or over the heads of
lower layers (cascaded). For at most 12 heads log Z is exact, and so is the gap of each guide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyro
import torch
from jaxtyping import Float
from pyro.distributions import Bernoulli, TorchDistribution
from torch import Tensor, nn
from torch.distributions import constraints
from torch.nn import functional as F

from latentheads.checks import check_as_many, check_choice, check_instance, check_least
from latentheads.contrib.circuits.samplers import Density
from latentheads.latents.bernoulli_heads.prior import dependence_mask
from latentheads.latents.bernoulli_heads.subsets import all_subsets

SITE = "heads"
"""The sample site of the gates."""

STRUCTURES = ("mean-field", "autoregressive", "cascaded")


class LogisticChain(TorchDistribution):
    """Gates whose logits are linear in earlier gates, of any number of heads.

    Args:
        logits: The logit of every head when no earlier head is active.
        weight: The change of each logit (row) by each earlier head (column); elsewhere zero.
    """

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012
    support = constraints.independent(constraints.boolean, 1)

    def __init__(
        self, logits: Float[Tensor, " head"], weight: Float[Tensor, "head before"]
    ) -> None:
        self.logits, self.weight = logits, weight
        super().__init__(torch.Size(), logits.shape, validate_args=False)

    def log_prob(self, value: Float[Tensor, "*sample head"]) -> Float[Tensor, "*sample"]:
        """Log-probability of subsets."""
        scores = self.logits + value.to(self.logits) @ self.weight.mT
        # not softplus, which leaves out log(1 + exp(-x)) of x above 20
        return F.logsigmoid((2 * value - 1) * scores).sum(-1)

    @torch.no_grad()
    def sample(self, sample_shape: torch.Size = torch.Size()) -> Float[Tensor, "*sample head"]:
        """Samples subsets, head by head."""
        gates = self.logits.new_zeros(*sample_shape, len(self.logits))
        for head in range(len(self.logits)):
            logit = self.logits[head] + gates @ self.weight[head]
            gates[..., head] = torch.bernoulli(logit.sigmoid())
        return gates

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> LogisticChain:
        """Only the shape that it has."""
        if tuple(batch_shape):
            raise ValueError("the subset of heads is one for all prompts: it has no batch")
        return self


class CircuitModel:
    """A Pyro model: gates from a flat prior, and the log-density of their subset as a factor.

    Args:
        density: The log-density, with the prior, such as :class:`.SubsetDensity`.
        heads: Number of heads.
    """

    def __init__(self, density: Density, heads: int) -> None:
        self.density, self.heads = density, heads

    def __call__(self) -> None:
        """Samples gates, and scores them."""
        flat = Bernoulli(torch.full((self.heads,), 0.5, dtype=torch.float64)).to_event(1)
        gates = pyro.sample(SITE, flat)
        pyro.factor("density", self.density(gates[None])[0] - flat.log_prob(gates))


class CircuitGuide(nn.Module):
    """A Pyro guide of the gates.

    Args:
        heads: Heads of every layer, from the lowest.
        structure: mean-field, autoregressive (over earlier heads of a layer) or cascaded (over
            the heads of lower layers).
        logit: Where the logits begin. At 0 a guide that has to move far is not there after some
            hundred steps; at 4 it begins near all heads, of which each has a probability of .98.
    """

    mask: Tensor

    def __init__(
        self, heads: Sequence[int], structure: str = "mean-field", logit: float = 0.0
    ) -> None:
        super().__init__()
        check_choice("structure", structure, STRUCTURES)
        self.structure = structure
        mask = dependence_mask(list(heads), structure).double()
        self.register_buffer("mask", mask)
        self.logits = nn.Parameter(mask.new_full((len(mask),), logit))
        self.weight = nn.Parameter(torch.zeros_like(mask))

    def distribution(self) -> LogisticChain:
        """The distribution of the gates."""
        return LogisticChain(self.logits, self.weight * self.mask)

    def forward(self) -> None:
        """Samples gates."""
        pyro.module("circuit_guide", self)
        pyro.sample(SITE, self.distribution())


@dataclass(frozen=True)
class ExactBound:
    """The bound of a guide, summed over all subsets, in nats.

    Attributes:
        log_evidence: log Z, the log of the density's sum.
        elbo: The evidence lower bound.
        divergence: The KL divergence of the guide from the posterior.
    """

    log_evidence: float
    elbo: float
    divergence: float

    @property
    def gap(self) -> float:
        """Log Z - ELBO."""
        return self.log_evidence - self.elbo


@torch.no_grad()
def exact_bound(guide: CircuitGuide, log_density: Float[Tensor, " subset"]) -> ExactBound:
    """The bound and the gap of a guide of at most 12 heads.

    Args:
        guide: The guide.
        log_density: The log-density of all subsets, as :func:`.all_subsets` orders them.
    """
    check_instance("log_density", log_density, Tensor, "of all subsets: posterior.log_density")
    log_q = _log_q(guide, log_density)
    q, log_posterior = log_q.exp(), log_density.log_softmax(-1)
    return ExactBound(
        float(log_density.logsumexp(0)),
        float((q * (log_density - log_q)).sum()),
        float((q * (log_q - log_posterior)).sum().clamp_min(0)),  # below 0 by rounding
    )


def fit_guide(
    guide: CircuitGuide,
    density: Density | Float[Tensor, " subset"],
    steps: int = 500,
    num_samples: int = 16,
    learning_rate: float = 0.05,
) -> list[float]:
    """Fits a guide, and returns the (estimated) bound at every step.

    Args:
        guide: The guide.
        density: The log-density of all subsets: the bound is summed over them. Or a function of
            subsets: the gradient is that of the score function, and the baseline of a sample is the
            mean of the others (Mnih and Rezende 2016, https://arxiv.org/abs/1602.06725).
        steps: Optimiser steps, by Adam.
        num_samples: Samples of a step, if the bound is estimated.
        learning_rate: Its learning rate, which falls to 0.
    """
    check_least({"steps": steps, "num_samples": num_samples}, steps=1, num_samples=2)
    optimizer = torch.optim.Adam(guide.parameters(), learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    bounds = []
    for _ in range(steps):
        if isinstance(density, Tensor):
            bound = _summed_bound(guide, density)
            loss = -bound
        else:
            loss, bound = _score_function(guide, density, num_samples)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        bounds.append(float(bound.detach()))
    return bounds


def _log_q(guide: CircuitGuide, log_density: Float[Tensor, " subset"]) -> Float[Tensor, " subset"]:
    subsets = all_subsets(len(guide.logits), log_density)
    check_as_many("log_density", log_density, "subsets", subsets)
    return guide.distribution().log_prob(subsets)


def _summed_bound(guide: CircuitGuide, log_density: Tensor) -> Float[Tensor, ""]:
    log_q = _log_q(guide, log_density)
    return (log_q.exp() * (log_density - log_q)).sum()


def _score_function(
    guide: CircuitGuide, density: Density, num_samples: int
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """A loss with the gradient of minus the bound, and the estimated bound."""
    distribution = guide.distribution()
    gates = distribution.sample(torch.Size([num_samples]))
    log_q = distribution.log_prob(gates)
    log_weights = density(gates) - log_q.detach()
    others = (log_weights.sum() - log_weights) / (num_samples - 1)
    return -((log_weights - others) * log_q).mean(), log_weights.mean()
