r"""Sums over a latent with few values of which each sentence has one: a mixture of whole sentences.

.. math:: p(y \mid x) = \sum_z p(z \mid x) \prod_t p(y_t \mid y_{<t}, x, z)

As in Shen et al. 2019, https://arxiv.org/abs/1902.07816. The posterior of a guide may be any
``Categorical``. Decoding is exact with :class:`latentheads.latents.mixture.PassMixture`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from pyro.distributions import Categorical
from pyro.poutine import Trace
from torch import Tensor

from latentheads.distributions.tokens import Tokens
from latentheads.latents.summed_out import SummedOut, TableEnumeration, expectation
from latentheads.names import TARGET


@dataclass(frozen=True, repr=False)
class SiteEnumeration(TableEnumeration):
    """All values of one latent of a sentence, at one site.

    Attributes:
        sites: The site, alone.
    """

    sites: Sequence[str]
    log_likelihoods: Float[Tensor, "*batch value"]
    log_prior: Float[Tensor, "*batch value"]
    log_q: Float[Tensor, "*batch value"]

    def kl(self) -> dict[str, Float[Tensor, "*batch"]]:
        return self._divergence_from(self.log_prior)

    def gap(self) -> dict[str, Float[Tensor, "*batch"]]:
        return self._divergence_from(self.log_posterior)

    def _divergence_from(self, log_p: Tensor) -> dict[str, Float[Tensor, "*batch"]]:
        (site,) = self.sites
        return {site: expectation(self.log_q, self.log_q - log_p)}


class MixtureChoice(Categorical):
    """The prior of the value of each sentence. It keeps the tokens given each value.

    Args:
        logits: The logits of the values.
        tokens: The tokens given each value; values are the first dimension of its states.
    """

    def __init__(self, logits: Float[Tensor, "*batch value"], tokens: Tokens) -> None:
        self.tokens = tokens
        super().__init__(logits=logits, validate_args=False)

    def log_likelihoods(
        self, tokens: Int[Tensor, "sentence target"]
    ) -> Float[Tensor, "*batch value"]:
        """Log p(y | x, z) of every sentence and value."""
        return self.tokens.log_prob(tokens).movedim(0, -1)

    def posterior(self, tokens: Int[Tensor, "sentence target"]) -> Categorical:
        """The exact posterior given the tokens, by Bayes' rule; detached."""
        log_joint = self.logits + self.log_likelihoods(tokens)
        # Categorical subtracts a logsumexp of hundreds of nats, which float32 rounds
        return Categorical(logits=log_joint.detach().log_softmax(-1))

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> MixtureChoice:
        """Adds batch dimensions in front."""
        batch_shape = torch.Size(batch_shape)
        if batch_shape == self.batch_shape:
            return self
        return MixtureChoice(self.logits.expand(*batch_shape, -1), self.tokens)


class MixtureTokens(Tokens, SummedOut):
    """The tokens of a sentence given a sampled value of its latent, or summed over all values.

    Attributes:
        latent_class: The distribution of the latent at its own site.
    """

    latent_class: ClassVar[type] = MixtureChoice

    def __init__(self, site: str, prior: MixtureChoice, value: Int[Tensor, "*batch"]) -> None:
        self.site, self.prior, self.value = site, prior, value
        tokens = prior.tokens
        states = tokens.states.movedim(0, -3)  # *batch, value, target, dim
        batch_shape = torch.broadcast_shapes(value.shape, states.shape[:-3])
        states = states.expand(*batch_shape, *states.shape[-3:])
        index = value.expand(batch_shape)[..., None, None, None]
        chosen = torch.take_along_dim(states, index, -3).squeeze(-3)
        super().__init__(chosen, tokens.valid, tokens.output)
        self.smoothing = tokens.smoothing

    def log_evidence(self, tokens: Int[Tensor, "sentence target"]) -> Float[Tensor, "*batch"]:
        return (self.prior.logits + self.prior.log_likelihoods(tokens)).logsumexp(-1)

    def enumerate_latents(self, model_trace: Trace, guide_trace: Trace) -> SiteEnumeration:
        prior = model_trace.nodes[self.site]["fn"]
        posterior = guide_trace.nodes.get(self.site, {"fn": prior})["fn"]
        if not isinstance(posterior, Categorical):
            kind = type(posterior).__name__
            raise ValueError(f"site {self.site!r}: the posterior must be Categorical, got {kind}")
        wanted, values = prior.logits.shape[-1], posterior.logits.shape[-1]
        if values != wanted:  # one would broadcast
            raise ValueError(
                f"site {self.site!r}: the posterior must be of {wanted} values, got {values}"
            )
        log_likelihoods = self.prior.log_likelihoods(model_trace.nodes[TARGET]["value"])
        return SiteEnumeration([self.site], log_likelihoods, prior.logits, posterior.logits)

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> MixtureTokens:
        batch_shape = torch.Size(batch_shape)
        if batch_shape == self.batch_shape:
            return self
        return MixtureTokens(self.site, self.prior, self.value.expand(batch_shape))
