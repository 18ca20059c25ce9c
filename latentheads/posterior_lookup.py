"""The posterior of a site: checks of what a guide returns, and the context that it is given."""

from __future__ import annotations

from typing import Any

import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor

from latentheads.distributions.heads import HeadContext, HeadVariable, is_expandable


def as_distribution(site: str, posterior: Any, prior: Any) -> Any:
    """Convert what a guide returns for a site to a distribution of the prior's shape.

    A tensor becomes a ``Delta``.
    """
    if posterior is prior:
        return prior
    distribution = posterior
    if isinstance(posterior, Tensor):
        distribution = dist.Delta(posterior, event_dim=min(posterior.dim(), prior.event_dim))
    if not isinstance(distribution, TorchDistributionMixin):
        raise ValueError(
            f"site {site!r}: get_posterior must return a distribution of Pyro, such as the "
            f"prior itself, got {type(distribution).__name__}"
        )
    shape = distribution.batch_shape
    if distribution.event_shape != prior.event_shape or not is_expandable(shape, prior.batch_shape):
        raise ValueError(
            f"site {site!r}: get_posterior must return a distribution of "
            f"{_describe_shapes(prior)}, as the prior, got {_describe_shapes(distribution)}"
        )
    return distribution if shape == prior.batch_shape else distribution.expand(prior.batch_shape)


def check_latent_pairs(name: str, q: Any, p: HeadVariable, value: Tensor) -> None:
    """Check that a posterior counts exactly the pairs that carry a latent."""
    latent = p.context.mask.latent
    # of another class only the density is known: it must not change where there is no latent
    if isinstance(q, HeadVariable):
        same = q.context.mask.latent is latent or torch.equal(q.context.mask.latent, latent)
    else:
        same = torch.equal(q.log_prob(value), q.log_prob(value + (latent == 0).unsqueeze(-3)))
    if not same:
        raise ValueError(
            f"site {name!r}: the posterior must count the pairs that carry a latent and no other; "
            "build it from the prior's context, or mask it"
        )


def _describe_shapes(distribution: Any) -> str:
    event_shape, batch_shape = tuple(distribution.event_shape), tuple(distribution.batch_shape)
    return f"event_shape {event_shape} and batch_shape {batch_shape}"


def context_of(site: str, prior: Any) -> HeadContext:
    """The context of a block: what it computed before its heads were sampled."""
    if not isinstance(prior, HeadVariable):
        raise ValueError(
            f"site {site!r}: a prior with a separate posterior must be a HeadVariable, such as "
            f"NormalHeads, which carries the context of its block; got {type(prior).__name__}"
        )
    return prior.context
