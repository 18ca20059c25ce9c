r"""The bound and its terms: one log-likelihood and one KL for each site, with how it was computed.

For a model p and a guide q over the latents z of a sentence pair (x, y),

.. math:: \mathcal L = \mathbb E_q[\log p(y \mid z, x)] - \sum_{\text{sites}} \mathbb E_q[
          \mathrm{KL}(q(z_l \mid \cdot) \,\|\, p(z_l \mid \cdot))] \le \log p(y \mid x),

both conditionals given the same samples of lower blocks. All terms are summed over heads, pairs and
tokens of a sentence; only the final report divides by tokens.

Importance weights of K samples give the tighter bound of Burda, Grosse and Salakhutdinov 2016,
https://arxiv.org/abs/1509.00519. The shape of their tail is estimated as in Vehtari et al.,
https://arxiv.org/abs/1507.02646.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyro.distributions as dist
import torch
from jaxtyping import Float
from pyro import poutine
from pyro.poutine import Trace
from pyro.poutine.guide import GuideMessenger
from pyro.poutine.messenger import Messenger
from pyro.poutine.util import prune_subsample_sites
from torch import Tensor, nn
from torch.distributions import kl_divergence

from latentheads.checks import check_least
from latentheads.distributions.heads import HeadVariable
from latentheads.distributions.normal import DeltaHeads
from latentheads.guide import check_own_model
from latentheads.latents.summed_out import Enumeration, enumerate_latents
from latentheads.names import SENTENCES, TARGET
from latentheads.passes import passes
from latentheads.posterior_lookup import check_latent_pairs

ZERO = torch.zeros((), dtype=torch.float64, device="cpu")

MIN_TAIL_SAMPLES = 30
"""Fewest samples for which the tail of the importance weights, a fifth of them, is fitted."""


class FromPrior(Messenger):
    """Sample pairs without a latent from the prior, even if a guide has sampled them."""

    def _pyro_sample(self, msg: Any) -> None:
        distribution, proposed = msg["fn"], msg["value"]
        if (
            isinstance(distribution, HeadVariable)
            and proposed is not None
            and not msg["is_observed"]
        ):
            msg["value"] = distribution.complete(proposed)


def traces(model: Any, guide: Any, *args: Any, **kwargs: Any) -> tuple[Trace, Trace]:
    """Run model and guide with shared latents, and return their traces.

    A ``GuideMessenger`` runs inside a single pass of the model. Any other Pyro guide runs first,
    and the model is replayed with its samples, except for pairs that carry no latent.
    """
    unwrapped = poutine.unwrap(guide)
    if isinstance(unwrapped, GuideMessenger):
        guide(*args, **kwargs)
        return unwrapped.get_traces()
    guide_trace = poutine.trace(guide).get_trace(*args, **kwargs)
    replayed = poutine.replay(model, trace=guide_trace)
    with FromPrior():
        model_trace = poutine.trace(replayed).get_trace(*args, **kwargs)
    return prune_subsample_sites(model_trace), prune_subsample_sites(guide_trace)


def check_sites(model_trace: Trace, guide_trace: Trace) -> None:
    """Check that a guide samples only latent sites of the model, unlike ``AutoNormal``."""
    for name, site in guide_trace.nodes.items():
        if site["type"] != "sample":
            continue
        if name == TARGET:
            is_observed = model_trace.nodes[TARGET]["is_observed"]
            raise ValueError(
                "a function around a guide leaves the likelihood out: around the guide in it put "
                "poutine.block(guide, hide=['target'])"
                if is_observed
                else "the target is not observed, so there is no bound: leave observe=False out"
            )
        if name not in model_trace.nodes:
            raise ValueError(
                f"site {name!r} is the guide's alone: a guide must sample the model's own sites; "
                "pyro.infer.Trace_ELBO trains any other"
            )


def closed_form(q: Any, p: Any) -> Tensor | None:
    """The KL from q to p of each sentence; None if no closed form is registered."""
    try:
        return kl_divergence(q, p)
    except NotImplementedError:
        return None


@dataclass(frozen=True, slots=True, repr=False)
class Terms:
    """The terms of one batch's bound under one sample of the latents, in nats per sentence.

    Attributes:
        log_likelihood: ``log p(y | z, x)``, in expectation over summed latents.
        kl: The KL of every latent site of a sentence, in the order of the network.
        how: How each KL was computed: ``tied`` (the posterior is the prior: exactly 0), ``fixed``
            (the same, and there is no noise), ``enumerated`` (a sum over all values),
            ``analytic`` or ``sampled``.
        log_ratio: ``log p(z) - log q(z)`` of this sample, for importance weights.
        tokens: Number of target tokens of every sentence.
        shared_kl: The KL of every latent that all sentences share, a number for each task if there
            are tasks. It counts once for the whole corpus.
        shared_log_ratios: The log-ratio of each of those latents.
        sampled_log_likelihood: ``log p(y | z, x)`` of this sample, if ``log_likelihood`` is an
            expectation over summed latents; None: it is the same.
        enumeration: All values of the latents that are summed out; None if there are none.
    """

    log_likelihood: Float[Tensor, batch]
    kl: dict[str, Float[Tensor, batch]]
    how: dict[str, str]
    log_ratio: Float[Tensor, batch]
    tokens: Float[Tensor, batch]
    shared_kl: dict[str, Float[Tensor, "*task"]]
    shared_log_ratios: dict[str, Float[Tensor, "*task"]]
    sampled_log_likelihood: Float[Tensor, batch] | None = None
    enumeration: Enumeration | None = None

    def __repr__(self) -> str:
        sites = {site: f"{float(kl.mean()):.4f} ({self.how[site]})" for site, kl in self.kl.items()}
        return (
            f"Terms of {self.tokens.numel()} sentences, means in nats: "
            f"elbo {float(self.elbo.mean()):.4f}, "
            f"log_likelihood {float(self.log_likelihood.mean()):.4f}, kl "
            + ", ".join(f"{site} {kl}" for site, kl in sites.items())
        )

    @property
    def total_kl(self) -> Float[Tensor, batch]:
        """The sum over a sentence's sites."""
        return sum(self.kl.values(), torch.zeros_like(self.log_likelihood))

    @property
    def elbo(self) -> Float[Tensor, batch]:
        """The bound of every sentence, given shared latents."""
        return self.log_likelihood - self.total_kl

    @property
    def noisy_sites(self) -> set[str]:
        """The sites whose samples affect the terms: those with noise, except enumerated ones."""
        enumerated = () if self.enumeration is None else self.enumeration.sites
        return {site for site, how in self.how.items() if how != "fixed"}.difference(enumerated)

    @property
    def log_weight(self) -> Float[Tensor, batch]:
        """``log p(y, z | x) - log q(z)`` of this sample, given shared latents."""
        sampled = self.sampled_log_likelihood
        return (self.log_likelihood if sampled is None else sampled) + self.log_ratio

    @property
    def bound(self) -> Float[Tensor, ""]:
        """The bound on the joint log p of all sentences of the batch."""
        return self.elbo.sum() - sum((kl.sum() for kl in self.shared_kl.values()), start=ZERO)

    @property
    def shared_log_ratio(self) -> Float[Tensor, ""]:
        """The log-ratio of all shared latents."""
        return sum((ratio.sum() for ratio in self.shared_log_ratios.values()), start=ZERO)


def _is_scaled_or_masked(site: Any) -> bool:
    """Whether a handler masks a site, or scales it by another factor than its plates do."""
    mask, scale, frames = site["mask"], site["scale"], site["cond_indep_stack"]
    corpus_scale = math.prod(
        (frame.full_size or frame.size) / frame.size for frame in frames if frame.size
    )
    masked = isinstance(mask, Tensor) or mask not in (None, True)
    return masked or isinstance(scale, Tensor) or not math.isclose(scale, corpus_scale)


@torch.no_grad()
@passes()
def terms(model: Any, guide: Any, *args: Any, **kwargs: Any) -> Terms:
    """Compute the terms of the bound for one sample of the latents, without gradients.

    The model must be in evaluation mode: with dropout, penalties and label smoothing there is no
    bound. Dropout in a guide is allowed: the bound then belongs to the guide with that dropout.

    Args:
        model: The model, in evaluation mode.
        guide: Its guide.
        *args: Arguments of both: a batch.
        **kwargs: Keyword arguments of both.

    Raises:
        ValueError: There is no bound: model and guide are swapped, the guide belongs to another
            model, or has a site of its own or the target; a module of the model is in training
            mode, a head is observed, a site has a point or a relaxed posterior, or a posterior
            counts pairs that carry no latent.

    Example:
        >>> bound = lh.terms(model, guide, batch)
        >>> bound.how["decoder.0.cross.logits"]
        'analytic'
        >>> bound.elbo.shape  # one for each sentence
        torch.Size([2])
    """
    check_own_model(model, guide)
    network = poutine.unwrap(model)
    if isinstance(network, nn.Module) and any(module.training for module in network.modules()):
        raise ValueError("model must be in evaluation mode: call model.eval() first")
    model_trace, guide_trace = traces(model, guide, *args, **kwargs)
    check_sites(model_trace, guide_trace)
    _check_handlers(model_trace)
    target = model_trace.nodes[TARGET]
    # in double precision: gaps are small differences of sums over thousands of tokens
    sampled_log_likelihood = log_likelihood = target["fn"].log_prob(target["value"]).double()
    enumeration = enumerate_latents(model_trace, guide_trace, TARGET)
    enumerated_kl = {} if enumeration is None else enumeration.kl()
    if enumeration is not None:
        log_likelihood = enumeration.log_likelihood.double()
    log_ratio = torch.zeros_like(log_likelihood)
    kl: dict[str, Tensor] = {}
    shared_kl: dict[str, Tensor] = {}
    shared_log_ratios: dict[str, Tensor] = {}
    how: dict[str, str] = {}
    for name, site in guide_trace.nodes.items():
        if site["type"] != "sample":
            continue
        q, p, value = site["fn"], model_trace.nodes[name]["fn"], site["value"]
        is_shared = SENTENCES not in {frame.name for frame in site["cond_indep_stack"]}
        _check(name, q, p, value, None if is_shared else log_likelihood)
        ratio = _log_ratio(q, p, value)
        if name in enumerated_kl and q is not p:
            # a sum of differences, which rounding may leave just below 0
            site_kl, how[name] = enumerated_kl[name].double().clamp_min(0), "enumerated"
        else:
            site_kl, how[name] = _kl(q, p, ratio)
        if is_shared:
            shared_kl[name], shared_log_ratios[name] = site_kl, ratio
        else:
            kl[name], log_ratio = site_kl, log_ratio + ratio
    tokens = target["fn"].valid.sum(-1).double()
    fields = log_likelihood, kl, how, log_ratio, tokens, shared_kl, shared_log_ratios
    return Terms(*fields, sampled_log_likelihood=sampled_log_likelihood, enumeration=enumeration)


def _check_handlers(model_trace: Trace) -> None:
    """Check that no handler observes, scales or masks a site: the terms do not have that."""
    for name, site in model_trace.nodes.items():
        if site["type"] != "sample":
            continue
        if site["is_observed"] and name != TARGET:
            raise ValueError(f"site {name!r} is observed, but the bound is on the target alone")
        if _is_scaled_or_masked(site):
            raise ValueError(
                f"site {name!r} is scaled or masked, but terms() computes the bound itself: "
                "Head_ELBO applies such handlers"
            )


def _check(name: str, q: Any, p: Any, value: Tensor, log_likelihood: Tensor | None) -> None:
    """Check that the terms of a site make a bound under this posterior."""
    if _is_point(q) and not _is_point(p):
        raise ValueError(
            f"site {name!r}: a point posterior under a {type(p).__name__} prior has no bound"
        )
    if q.support.is_discrete != p.support.is_discrete:
        raise ValueError(f"site {name!r}: a relaxed posterior under a discrete prior has no bound")
    if log_likelihood is None:
        return
    if q.batch_shape != log_likelihood.shape:
        raise ValueError(
            f"site {name!r} must have one latent for each sentence, "
            f"batch shape {tuple(log_likelihood.shape)}, got {tuple(q.batch_shape)}"
        )
    if isinstance(p, HeadVariable):
        check_latent_pairs(name, q, p, value)


def _is_point(distribution: Any) -> bool:
    """Whether a distribution, possibly wrapped, has all its mass in one value."""
    while not isinstance(distribution, dist.Delta | DeltaHeads):
        if (distribution := getattr(distribution, "base_dist", None)) is None:
            return False
    return True


def _log_ratio(q: Any, p: Any, value: Tensor) -> Tensor:
    if q is p:
        return torch.zeros(q.batch_shape, dtype=torch.float64, device=value.device)
    return p.log_prob(value).double() - q.log_prob(value).double()


def _kl(q: Any, p: Any, log_ratio: Tensor) -> tuple[Tensor, str]:
    if q is p:
        return torch.zeros_like(log_ratio), "fixed" if isinstance(p, DeltaHeads) else "tied"
    exact = closed_form(q, p)
    if exact is None:
        return -log_ratio, "sampled"
    kl = exact.double()
    # rounding, in nats; what is further below 0 is a wrong formula, and shown
    return torch.where(kl > -0.01, kl.clamp_min(0), kl), "analytic"


@dataclass(frozen=True, slots=True)
class Importance:
    """Log importance weights of K samples of each sentence, and diagnostics.

    If sentences share a latent they have common weights: one column for all of them.

    Attributes:
        log_weights: ``log p(y, z_k | x) - log q(z_k)``.
    """

    log_weights: Float[Tensor, "sample batch"]

    @property
    def bound(self) -> Float[Tensor, batch]:
        r"""IWAE_K of every sentence, :math:`\log \frac1K \sum_k w_k`; its mean is at most log p."""
        return self.log_weights.logsumexp(0) - math.log(self.log_weights.shape[0])

    @property
    def effective_sample_size(self) -> Float[Tensor, batch]:
        r""":math:`(\sum w)^2 / \sum w^2`, between 1 and K."""
        return torch.exp(2 * self.log_weights.logsumexp(0) - (2 * self.log_weights).logsumexp(0))

    @property
    def pareto_k(self) -> Float[Tensor, batch]:
        """Shape of the weights' tail (Pareto k-hat); above 0.7 the estimate is unreliable.

        Of few samples it is rough, and often below 0.7 though the tail is heavy. NaN if unknown:
        for fewer than 30 samples, or if weights tie at the cut-off of the tail, as with few
        discrete values. -inf if the largest weights are equal: there is no tail.
        """
        if self.log_weights.shape[0] < MIN_TAIL_SAMPLES:
            return self.log_weights.new_full(self.log_weights.shape[1:], torch.nan)
        columns = self.log_weights.cpu().numpy().T
        return self.log_weights.new_tensor([_tail_shape(column) for column in columns])


def _tail_shape(log_weights: np.ndarray) -> float:
    """Pareto k-hat of one sentence's weights; ArviZ expects negative log-weights.

    If weights tie at the cut-off, ArviZ divides by zero and returns a meaningless number, or
    infinity.
    """
    from arviz_stats.base import array_stats  # takes long to load

    try:
        with np.errstate(divide="raise", invalid="raise"):
            shape = float(array_stats.psislw(-log_weights)[1])
            return shape if shape < math.inf else math.nan
    except FloatingPointError:
        return math.nan
    except ValueError as error:
        if "tail" in str(error):
            return -math.inf
        raise


def importance(
    model: Any, guide: Any, *args: Any, num_samples: int = 32, **kwargs: Any
) -> Importance:
    """Compute the log importance weights of K samples, one pass each.

    Args:
        model: The model, in evaluation mode.
        guide: Its guide.
        *args: Arguments of both: a batch.
        num_samples: K.
        **kwargs: Keyword arguments of both.

    Raises:
        ValueError: K is less than 1.

    Example:
        >>> weights = lh.inference.importance(model, guide, batch, num_samples=8)
        >>> weights.log_weights.shape
        torch.Size([8, 2])
        >>> weights.bound > weights.log_weights.mean(0)  # IWAE_K, and the mean of K samples
        tensor([True, True])
    """
    check_least({"num_samples": num_samples}, num_samples=1)
    sampled_terms = [terms(model, guide, *args, **kwargs) for _ in range(num_samples)]
    weights = torch.stack([sample.log_weight for sample in sampled_terms])
    if sampled_terms[0].shared_kl:
        shared = torch.stack([sample.shared_log_ratio for sample in sampled_terms])
        weights = (weights.sum(-1) + shared)[:, None]
    return Importance(weights)
