"""A posterior that stands in for the prior only where a pair carries a latent."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import kl_divergence
from torch.distributions.kl import register_kl

from latentheads.distributions.heads import HeadLogits

__all__ = ["Restricted"]


class Restricted(HeadLogits):
    """Draws the pairs that carry a latent from a posterior, and all others from the prior.

    Where the rows of a context are read but not counted, this is what makes the sum over the
    counted rows a bound: elsewhere the log-ratio is 0, because posterior and prior are the same.

    Args:
        posterior: The law of the pairs that carry a latent; rows must be independent in it.
        prior: The law of the other pairs.
    """

    def __init__(self, posterior: HeadLogits, prior: HeadLogits) -> None:
        self.posterior, self.prior = posterior, prior
        super().__init__(self._chosen(posterior.location, prior.location), posterior.context)

    def _chosen(self, counted: Tensor, other: Tensor) -> Tensor:
        """One value where a pair carries a latent, the other elsewhere."""
        latent = self.prior.context.mask.latent.unsqueeze(-3)
        return torch.where(latent > 0, counted, other)

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        """Draws from both and takes of each what it stands for."""
        return self._chosen(self.posterior.rsample(sample_shape), self.prior.rsample(sample_shape))

    def _draw(self, noise: Tensor) -> Tensor:
        return self._chosen(self.posterior._draw(noise), self.prior._draw(noise))

    def _density(self, value: Tensor, noise: Tensor | None) -> Float[Tensor, "*batch"]:
        return self.posterior.log_prob(value)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> HeadLogits:
        """Puts batch dimensions in front."""
        if torch.Size(batch_shape) == self.batch_shape:
            return self
        return Restricted(self.posterior.expand(batch_shape), self.prior.expand(batch_shape))

    def _relocated(self, location: Tensor) -> HeadLogits:
        return self.expand(location.shape[:-3])


@register_kl(Restricted, HeadLogits)
def _kl_restricted(q: Restricted, p: HeadLogits) -> Tensor:
    """That of the posterior: a density counts no other pairs."""
    return kl_divergence(q.posterior, p)
