r"""Latents that are summed out: what bounds, losses and evaluation ask of them.

Such a latent is sampled like every other one. It gives the model's target a distribution that is a
:class:`SummedOut`, which computes what a sample only estimates: :math:`\mathbb E_q[\log p(y \mid z,
x)]`, the KL of each site, and the exact log p(y | x). Nothing here or in
:mod:`latentheads.inference` names a kind of latent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from pyro.poutine import Trace
from torch import Tensor

Objective = Literal["bound", "marginal", "sampled", "iwae", "rws", "relaxed"]
"""The objectives that summed latents may be trained by."""


class Enumeration(ABC):
    """All values of the summed latents of a pass, under the model and under its guide.

    Attributes:
        sites: Their sample sites.
    """

    sites: Sequence[str]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self.sites)})"

    @property
    @abstractmethod
    def log_evidence(self) -> Float[Tensor, "*batch"]:
        """Exact log p(y | x) of every sentence, given all other latents."""

    @property
    @abstractmethod
    def log_likelihood(self) -> Float[Tensor, "*batch"]:
        """The expectation of log p(y | z, x) under the guide."""

    @abstractmethod
    def kl(self) -> dict[str, Float[Tensor, "*batch"]]:
        """The KL of every site; exactly 0 if the posterior is the prior."""

    @abstractmethod
    def gap(self) -> dict[str, Float[Tensor, "*batch"]]:
        """The KL of every site's posterior to the exact one; their sum is the gap of the bound."""

    @abstractmethod
    def entropies(self) -> dict[str, Float[Tensor, "*batch"]]:
        """The prior's gap, both entropies, and the information in the target, by name."""

    @abstractmethod
    def log_weights(self, num_samples: int) -> Float[Tensor, sample * batch]:
        """``log p(y, z | x) - log q(z)`` of new samples, without a pass of the network."""


def expectation(
    log_weights: Float[Tensor, "*#batch value"], values: Float[Tensor, "*#batch value"]
) -> Float[Tensor, "*#batch"]:
    """The expectation of values; one that is impossible counts 0, even if it is not finite."""
    weights = log_weights.exp()
    return (weights * values.masked_fill(weights == 0, 0.0)).sum(-1)


class TableEnumeration(Enumeration):
    """All values of the latents of a sentence in a table, one column for each joint value.

    Attributes:
        log_likelihoods: Log p(y | x, z) of every sentence and value.
        log_prior: Log-probability of every value under the prior.
        log_q: Log-probability of every value under the guide.
    """

    log_likelihoods: Float[Tensor, "*batch value"]
    log_prior: Float[Tensor, "*batch value"]
    log_q: Float[Tensor, "*batch value"]

    @property
    def log_joint(self) -> Float[Tensor, "*batch value"]:
        """Log p(y, z | x) of every value."""
        return self.log_likelihoods + self.log_prior

    @property
    def log_posterior(self) -> Float[Tensor, "*batch value"]:
        """Log-probability of every value given the target."""
        return self.log_joint.log_softmax(-1)

    @property
    def log_evidence(self) -> Float[Tensor, "*batch"]:
        return self.log_joint.logsumexp(-1)

    @property
    def log_likelihood(self) -> Float[Tensor, "*batch"]:
        return expectation(self.log_q, self.log_likelihoods)

    def entropies(self) -> dict[str, Float[Tensor, "*batch"]]:
        """Entropies of prior and exact posterior, and the KL of each to the other."""
        log_prior = self.log_prior.expand_as(self.log_joint)
        log_posterior = self.log_posterior
        return {
            "prior_gap": expectation(log_prior, log_prior - log_posterior),
            "prior_entropy": -expectation(log_prior, log_prior),
            "posterior_entropy": -expectation(log_posterior, log_posterior),
            "information": expectation(log_posterior, log_posterior - log_prior),
        }

    @torch.no_grad()
    def log_weights(self, num_samples: int) -> Float[Tensor, sample * batch]:
        values = (self.log_joint - self.log_q).double().expand(num_samples, *self.log_joint.shape)
        if not num_samples:  # torch samples at least once
            return values[..., 0]
        logits = self.log_q.nan_to_num()  # the bound is NaN, and its error names why
        index = torch.distributions.Categorical(logits=logits).sample((num_samples,))
        return values.gather(-1, index[..., None])[..., 0]


class SummedOut(ABC):
    """A distribution of the target whose latents can be summed out.

    Attributes:
        latent_class: The distribution of such a latent at its own site.
    """

    latent_class: ClassVar[type]

    @abstractmethod
    def enumerate_latents(self, model_trace: Trace, guide_trace: Trace) -> Enumeration:
        """Enumerate the latents of a pass."""

    @abstractmethod
    def log_evidence(self, tokens: Int[Tensor, "*words target"]) -> Float[Tensor, "*batch"]:
        """Exact log p(y | x) of every sentence, given all other latents."""

    def loss_terms(
        self, model_trace: Trace, guide_trace: Trace, objective: str, num_samples: int
    ) -> tuple[Tensor, Mapping[str, Tensor], bool]:
        """The terms of a training objective; the default has those of the bound.

        Args:
            model_trace: The model's trace.
            guide_trace: The guide's trace.
            objective: One of ``Objective``.
            num_samples: Samples of the objectives that take several.

        Returns:
            The log-likelihood of every sentence, the KL of every site, and whether that KL is a
            part of the bound; if not, it is in the log-likelihood already.

        Raises:
            ValueError: The default is asked for another objective than the bound.
        """
        if objective != "bound":
            raise ValueError(
                f"{type(self).__name__} is trained by its bound, loss Head_ELBO: it has no "
                f"{objective}"
            )
        enumeration = self.enumerate_latents(model_trace, guide_trace)
        return enumeration.log_likelihood, enumeration.kl(), True

    def check_not_observed(self, model_trace: Trace) -> None:
        """Raises a ValueError if one of the latents is observed, such as a gold alignment."""
        for name, site in model_trace.nodes.items():
            is_latent = site["type"] == "sample" and isinstance(site["fn"], self.latent_class)
            if is_latent and site["is_observed"]:
                raise ValueError(
                    f"site {name!r} is observed, and Head_ELBO sums over it: train with "
                    "pyro.infer.Trace_ELBO"
                )


def enumerate_latents(model_trace: Trace, guide_trace: Trace, target: str) -> Enumeration | None:
    """Enumerate the latents of a pass that are summed out; None if there are none."""
    distribution: Any = model_trace.nodes[target]["fn"]
    if not isinstance(distribution, SummedOut):
        return None
    return distribution.enumerate_latents(model_trace, guide_trace)
