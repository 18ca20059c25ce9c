r"""The bound and its terms: one log-likelihood and one KL a site, each said how it was computed.

For a model p and a guide q over the latents z of a sentence pair (x, y),

.. math:: \mathcal L = \mathbb E_q[\log p(y \mid z, x)] - \sum_{\text{sites}} \mathbb E_q[
          \mathrm{KL}(q(z_l \mid \cdot) \,\|\, p(z_l \mid \cdot))] \le \log p(y \mid x),

both conditionals read on the same sampled lower blocks. Everything here is summed over heads, pairs
and tokens and kept a sentence; a figure is divided by its tokens once, at the end.

Importance weights of K draws give the tighter bound of Burda, Grosse and Salakhutdinov 2016,
https://arxiv.org/abs/1509.00519; the shape of their tail is that of Vehtari et al.,
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
from pyro.poutine.util import prune_subsample_sites
from torch import Tensor, nn
from torch.distributions import kl_divergence

from latentheads.checks import check_least
from latentheads.distributions import DeltaHeads, HeadVariable
from latentheads.guide import check_own_model
from latentheads.handlers import FromPrior
from latentheads.inference.enumeration import Enumeration, enumerate_alignments
from latentheads.names import SENTENCES, TARGET
from latentheads.passes import passes

__all__ = ["Importance", "Terms", "check_sites", "closed_form", "importance", "terms", "traces"]


ZERO = torch.zeros((), dtype=torch.float64)

TAIL_DRAWS = 25
"""The fewest draws whose weights have a tail that can be fitted."""


def traces(model: Any, guide: Any, *args: Any, **kwargs: Any) -> tuple[Trace, Trace]:
    """Runs model and guide and returns their traces, latents shared.

    A guide that reads the model (a ``GuideMessenger``) takes one pass of it; any other Pyro guide
    runs first and the model is replayed after it, but for the pairs that carry no latent.
    """
    reader = poutine.unwrap(guide)
    if isinstance(reader, GuideMessenger):
        guide(*args, **kwargs)
        return reader.get_traces()
    guide_trace = poutine.trace(guide).get_trace(*args, **kwargs)
    replayed = poutine.replay(model, trace=guide_trace)
    with FromPrior():
        model_trace = poutine.trace(replayed).get_trace(*args, **kwargs)
    return prune_subsample_sites(model_trace), prune_subsample_sites(guide_trace)


def check_sites(model_trace: Trace, guide_trace: Trace) -> None:
    """Refuses a guide that draws what the model does not, as ``AutoNormal`` does, or the target.

    Raises:
        ValueError: It names such a site.
    """
    for name, site in guide_trace.nodes.items():
        if site["type"] != "sample":
            continue
        if name == TARGET:
            raise ValueError(
                "a function around a guide leaves the likelihood out: around the guide in it put "
                "poutine.block(guide, hide=['target'])"
            )
        if name not in model_trace.nodes:
            raise ValueError(
                f"site {name!r} is the guide's alone: a guide must draw the model's own sites; "
                "pyro.infer.Trace_ELBO trains any other"
            )


def closed_form(q: Any, p: Any) -> Tensor | None:
    """The KL from q to p a sentence, or None where no closed form is registered."""
    try:
        return kl_divergence(q, p)
    except NotImplementedError:
        return None


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of one batch's bound under one draw of the latents, in nats a sentence.

    Attributes:
        log_likelihood: ``log p(y | z, x)``.
        kl: The KL of every latent site of a sentence, in the order of the network.
        how: How each KL was computed: ``tied`` (the posterior is the prior: exactly 0), ``fixed``
            (the same, and there is no noise), ``enumerated`` (a sum over all alignments),
            ``analytic`` or ``sampled``.
        log_ratio: ``log p(z) - log q(z)`` of this very draw, for importance weights.
        tokens: Target tokens of every sentence.
        shared_kl: The KL of every latent that all sentences share, one number a task where there
            are tasks: counted once for all sentences there are.
        shared_log_ratios: The log-ratio of each of those.
        drawn: ``log p(y | z, x)`` of this very draw, where ``log_likelihood`` is a sum over all
            alignments; None: it is the same.
        summed: What is known of the alignments without drawing them; None where nothing is.
    """

    log_likelihood: Float[Tensor, batch]
    kl: dict[str, Float[Tensor, batch]]
    how: dict[str, str]
    log_ratio: Float[Tensor, batch]
    tokens: Float[Tensor, batch]
    shared_kl: dict[str, Float[Tensor, "*task"]]
    shared_log_ratios: dict[str, Float[Tensor, "*task"]]
    drawn: Float[Tensor, batch] | None = None
    summed: Enumeration | None = None

    @property
    def total_kl(self) -> Float[Tensor, batch]:
        """The sum over a sentence's sites."""
        return sum(self.kl.values(), torch.zeros_like(self.log_likelihood))

    @property
    def elbo(self) -> Float[Tensor, batch]:
        """The bound of every sentence, given what all sentences share."""
        return self.log_likelihood - self.total_kl

    @property
    def varying(self) -> set[str]:
        """The sites that have noise, but for alignments that are summed."""
        summed = () if self.summed is None else self.summed.sites
        return {site for site, how in self.how.items() if how != "fixed"}.difference(summed)

    @property
    def log_weight(self) -> Float[Tensor, batch]:
        """``log p(y, z | x) - log q(z)`` of this draw, given what all sentences share."""
        drawn = self.log_likelihood if self.drawn is None else self.drawn
        return drawn + self.log_ratio

    @property
    def bound(self) -> Float[Tensor, ""]:
        """The bound on log p of all these sentences together."""
        return self.elbo.sum() - sum((kl.sum() for kl in self.shared_kl.values()), start=ZERO)

    @property
    def shared_log_ratio(self) -> Float[Tensor, ""]:
        """The log-ratio of all that sentences share."""
        return sum((ratio.sum() for ratio in self.shared_log_ratios.values()), start=ZERO)


def _is_weighed(site: Any) -> bool:
    """Whether a handler masks a site, or scales it by more than its batch stands for a corpus."""
    mask, scale, frames = site["mask"], site["scale"], site["cond_indep_stack"]
    of_corpus = math.prod((each.full_size or each.size) / each.size for each in frames if each.size)
    masked = isinstance(mask, Tensor) or mask not in (None, True)
    return masked or isinstance(scale, Tensor) or not math.isclose(scale, of_corpus)


@torch.no_grad()
@passes()
def terms(model: Any, guide: Any, *args: Any, **kwargs: Any) -> Terms:
    """Computes the terms of the bound for one draw.

    The bound is of the model in evaluation mode: in training mode dropout, penalties and smoothing
    act, which make none. Dropout within a guide leaves it a bound, of the guide as it is drawn.

    Args:
        model: The model, in evaluation mode.
        guide: Its guide.
        *args: What both are run on: a batch.
        **kwargs: The same by name.

    Raises:
        ValueError: There is no true bound to compute: the guide stands in the model's place or
            reads another model, or has a site of its own or the target; a module of the model is in
            training mode, a head is observed, a site has a point or a relaxed posterior, or a
            posterior counts pairs that carry no latent.

    Example:
        >>> bound = lh.terms(model, guide, batch)
        >>> bound.how["decoder.0.cross.logits"]
        'analytic'
        >>> bound.elbo.shape  # one a sentence
        torch.Size([2])
    """
    check_own_model(model, guide)
    network = poutine.unwrap(model)
    if isinstance(network, nn.Module) and any(part.training for part in network.modules()):
        raise ValueError("model must be in evaluation mode: call model.eval() first")
    model_trace, guide_trace = traces(model, guide, *args, **kwargs)
    check_sites(model_trace, guide_trace)
    for name, site in model_trace.nodes.items():
        if site["type"] != "sample":
            continue
        if site["is_observed"] and name != TARGET:
            raise ValueError(f"site {name!r} is observed, but the bound is on the target alone")
        if _is_weighed(site):
            raise ValueError(
                f"site {name!r} is scaled or masked, and terms are of the bound itself: Head_ELBO "
                "heeds handlers around it"
            )
    target = model_trace.nodes[TARGET]
    drawn = log_likelihood = target["fn"].log_prob(target["value"]).double()
    summed = enumerate_alignments(model_trace, guide_trace)
    of_blocks = {} if summed is None else summed.kl()
    if summed is not None:
        log_likelihood = summed.log_likelihood.double()
    log_ratio = torch.zeros_like(log_likelihood)
    kl: dict[str, Tensor] = {}
    shared: dict[str, Tensor] = {}
    shared_ratios: dict[str, Tensor] = {}
    how: dict[str, str] = {}
    for name, site in guide_trace.nodes.items():
        if site["type"] != "sample":
            continue
        q, p, value = site["fn"], model_trace.nodes[name]["fn"], site["value"]
        common = SENTENCES not in {frame.name for frame in site["cond_indep_stack"]}
        _check(name, q, p, value, None if common else log_likelihood)
        ratio = _log_ratio(q, p, value)
        if name in of_blocks and q is not p:
            found, how[name] = of_blocks[name].double().clamp_min(0), "enumerated"
        else:
            found, how[name] = _kl(q, p, ratio)
        if common:
            shared[name], shared_ratios[name] = found, ratio
        else:
            kl[name], log_ratio = found, log_ratio + ratio
    tokens = target["fn"].valid.sum(-1).double()
    known = log_likelihood, kl, how, log_ratio, tokens, shared, shared_ratios
    return Terms(*known, drawn=drawn, summed=summed)


def _check(name: str, q: Any, p: Any, value: Tensor, log_likelihood: Tensor | None) -> None:
    """Refuses a posterior under which the sum of terms would bound nothing."""
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
            f"site {name!r} must have one latent a sentence, "
            f"batch shape {tuple(log_likelihood.shape)}, got {tuple(q.batch_shape)}"
        )
    if isinstance(p, HeadVariable):
        _check_pairs(name, q, p, value)


def _is_point(law: Any) -> bool:
    """Whether a law has all its mass in one value, whatever stands around it."""
    while not isinstance(law, dist.Delta | DeltaHeads):
        if (law := getattr(law, "base_dist", None)) is None:
            return False
    return True


def _check_pairs(name: str, q: Any, p: HeadVariable, value: Tensor) -> None:
    """Refuses a posterior that counts other pairs than those that carry a latent."""
    latent = p.context.mask.latent
    if isinstance(q, HeadVariable):
        same = q.context.mask.latent is latent or torch.equal(q.context.mask.latent, latent)
    else:
        same = torch.equal(q.log_prob(value), q.log_prob(value + (latent == 0).unsqueeze(-3)))
    if not same:
        raise ValueError(
            f"site {name!r}: the posterior must count the pairs that carry a latent and no other; "
            "build it from the prior's context, or mask it"
        )


def _log_ratio(q: Any, p: Any, value: Tensor) -> Tensor:
    if q is p:
        return torch.zeros(q.batch_shape, dtype=torch.float64, device=value.device)
    return p.log_prob(value).double() - q.log_prob(value).double()


def _kl(q: Any, p: Any, log_ratio: Tensor) -> tuple[Tensor, str]:
    if q is p:
        return torch.zeros_like(log_ratio), "fixed" if isinstance(p, DeltaHeads) else "tied"
    exact = closed_form(q, p)
    return (-log_ratio, "sampled") if exact is None else (exact.double(), "analytic")


@dataclass(frozen=True, slots=True)
class Importance:
    """Log importance weights of K draws a sentence, and what they say.

    Where sentences share a latent they are weighed together: one column for all of them.

    Attributes:
        log_weights: ``log p(y, z_k | x) - log q(z_k)``.
    """

    log_weights: Float[Tensor, "sample batch"]

    @property
    def bound(self) -> Float[Tensor, batch]:
        r"""IWAE_K of every sentence, :math:`\log \frac1K \sum_k w_k`, at most log p(y | x)."""
        return self.log_weights.logsumexp(0) - math.log(self.log_weights.shape[0])

    @property
    def effective_sample_size(self) -> Float[Tensor, batch]:
        r""":math:`(\sum w)^2 / \sum w^2`, between 1 and K."""
        return torch.exp(2 * self.log_weights.logsumexp(0) - (2 * self.log_weights).logsumexp(0))

    @property
    def pareto_k(self) -> Float[Tensor, batch]:
        """Shape of the weights' tail; above 0.7 the estimate is not to be trusted.

        NaN where it is not known: for fewer than 25 draws, or where weights tie with the one that
        cuts the tail off, as those of a few discrete choices do. -inf where the largest weights are
        equal: there is no tail.
        """
        if self.log_weights.shape[0] < TAIL_DRAWS:
            return self.log_weights.new_full(self.log_weights.shape[1:], torch.nan)
        columns = self.log_weights.cpu().numpy().T
        return self.log_weights.new_tensor([_tail_shape(column) for column in columns])


def _tail_shape(log_weights: np.ndarray) -> float:
    """Pareto k-hat of one sentence's weights; ArviZ takes log-likelihoods, which weigh inversely.

    Where weights tie with the cut-off ArviZ divides by zero and answers with a number all the same.
    """
    from arviz_stats.base import array_stats  # takes long to load

    try:
        with np.errstate(divide="raise", invalid="raise"):
            return float(array_stats.psislw(-log_weights)[1])
    except FloatingPointError:
        return math.nan
    except ValueError as reason:
        if "tail" in str(reason):
            return -math.inf
        raise


def importance(model: Any, guide: Any, *args: Any, samples: int, **kwargs: Any) -> Importance:
    """Draws K samples, one pass each, and keeps the log-weight of each sentence.

    Args:
        model: The model, in evaluation mode.
        guide: Its guide.
        *args: What both are run on: a batch.
        samples: K.
        **kwargs: The same by name.

    Raises:
        ValueError: There are no samples.

    Example:
        >>> weights = lh.importance(model, guide, batch, samples=8)
        >>> weights.log_weights.shape
        torch.Size([8, 2])
        >>> weights.bound > weights.log_weights.mean(0)  # IWAE_K, and the mean of its K draws
        tensor([True, True])
    """
    check_least({"samples": samples}, samples=1)
    draws = [terms(model, guide, *args, **kwargs) for _ in range(samples)]
    weights = torch.stack([draw.log_weight for draw in draws])
    if draws[0].shared_kl:
        shared = torch.stack([draw.shared_log_ratio for draw in draws])
        weights = (weights.sum(-1) + shared)[:, None]
    return Importance(weights)
