"""The training objective: Pyro's Trace_ELBO for reparameterised guides, without host syncs.

Free bits are those of Kingma et al. 2016, https://arxiv.org/abs/1606.04934.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, ClassVar, TypeVar, get_args

import torch
from pyro import poutine
from pyro.distributions.util import scale_and_mask
from pyro.infer import Trace_ELBO
from pyro.infer.util import is_validation_enabled
from pyro.poutine import Trace
from pyro.poutine.guide import GuideMessenger
from pyro.poutine.messenger import Messenger
from torch import Tensor

from latentheads.checks import check_choice, check_least
from latentheads.distributions.heads import HeadVariable
from latentheads.distributions.normal import PartsOfKL, parts_of_kl, stack_kls
from latentheads.guide import GUIDE_INFER, ModelGuide, check_own_model
from latentheads.inference.bound import FromPrior, check_sites, closed_form, traces
from latentheads.latents.summed_out import Objective, SummedOut
from latentheads.names import SENTENCES, TARGET
from latentheads.passes import one_at_a_time

KL = "kl"
"""The key of a site for the KL that was computed when it was sampled."""


class Head_ELBO(Trace_ELBO):
    """Negative evidence lower bound: expected log-likelihood less one KL for each latent site.

    Sites of heads are reparameterised, and alignments are summed out. With its defaults other KLs
    are sampled, and where logits alone are latent the gradients are those of ``Trace_ELBO``, bit
    for bit; with ``analytic`` they are those of ``TraceMeanField_ELBO``. It spares two things:
    nothing is copied to the host, and a site whose posterior is its prior is not scored at all,
    since its log-ratio is exactly 0.

    A weight other than 1, free bits or smoothed tokens make an objective to train with, not a
    bound; :func:`latentheads.terms` computes the bound. With a weight, free bits or closed forms,
    the KL of a block is computed as soon as its logits are sampled, if the guide runs inside the
    model's pass. Its distributions are then freed, so that a deep network holds those of one block
    at a time. If Pyro's validation is on, they are all kept for its checks.

    Args:
        kl_weight: Factor of every KL term; may be changed between steps. The KL of alignments has
            no factor where the objective is not the guide's bound (marginal, iwae, rws).
        free_bits: The KL of each site, summed over the sentences of a batch and over vectorised
            particles, counts as at least this number of nats per target token. It does not act on
            latents that all sentences share.
        analytic: Use the closed form where one is registered, as ``TraceMeanField_ELBO`` does.
        objective: What alignments are trained by: the guide's bound, summed over all of them, or by
            one sample of it (sampled); the exact log p(y | x), and the guide's bound beside it
            (marginal); or several samples, weighed (iwae, rws).
        num_samples: Samples of iwae and rws.
        **options: Those of ``Trace_ELBO``, such as ``num_particles``.

    Attributes:
        relaxes: Whether it learns what is discrete and not summed out by a relaxation of samples.

    Example:
        >>> from pyro.infer import SVI
        >>> from pyro.optim import Adam
        >>> svi = SVI(model, guide, Adam({"lr": 1e-3}), lh.Head_ELBO())
        >>> svi.step(batch) > 0
        True
    """

    relaxes: ClassVar[bool] = True

    def __init__(
        self,
        kl_weight: float = 1.0,
        free_bits: float = 0.0,
        analytic: bool = False,
        objective: str = "bound",
        num_samples: int = 5,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        check_least({"kl_weight": kl_weight, "free_bits": free_bits}, kl_weight=0.0, free_bits=0.0)
        counts = {"num_samples": num_samples, "num_particles": self.num_particles}
        check_least(counts, num_samples=2, num_particles=1)
        check_choice("objective", objective, get_args(Objective))
        self.kl_weight = kl_weight
        self.free_bits = free_bits
        self.analytic = analytic
        self.objective, self.num_samples = objective, num_samples

    def check_pair(self, model: Any, guide: ModelGuide) -> None:
        """Raises an error for a pair that it cannot learn; a subclass may."""

    def _get_trace(
        self, model: Any, guide: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Trace, Trace]:
        if is_validation_enabled():
            with FromPrior():
                return super()._get_trace(model, guide, args, kwargs)
        messenger = poutine.unwrap(guide)
        needs_trace = isinstance(messenger, ModelGuide) and messenger.needs_trace
        if self._sampled or needs_trace or not isinstance(messenger, GuideMessenger):
            return traces(model, guide, *args, **kwargs)
        with _EagerKL(self) as eager:
            pair = traces(model, guide, *args, **kwargs)
        eager.write(pair[1])
        return pair

    @property
    def _sampled(self) -> bool:
        """Whether the loss is that of ``Trace_ELBO``."""
        return not self.analytic and self.kl_weight == 1.0 and not self.free_bits

    def _objective(self, model_trace: Trace, guide_trace: Trace) -> Tensor:
        """The objective of one particle, which is maximised."""
        check_sites(model_trace, guide_trace)
        is_summed = isinstance(model_trace.nodes[TARGET]["fn"], SummedOut)
        if self.objective != "bound" and not is_summed:
            raise ValueError(f"objective {self.objective} needs latents that are summed out")
        in_likelihood = self._enter_summed(model_trace, guide_trace) if is_summed else []
        latents = [
            name
            for name, site in guide_trace.nodes.items()
            if site["type"] == "sample"
            and name not in in_likelihood
            and not self.tied(model_trace, site)
        ]
        if self._sampled and not is_summed:
            return self._plain(model_trace, guide_trace, latents)
        return self._weighted(model_trace, guide_trace, latents)

    def _enter_summed(self, model_trace: Trace, guide_trace: Trace) -> list[str]:
        """Writes log-likelihood and KL of summed-out latents into the sites of the traces.

        Returns:
            The sites whose KL is part of the likelihood already.

        Raises:
            ValueError: One of the latents is observed.
        """
        target = model_trace.nodes[TARGET]
        target["fn"].check_not_observed(model_trace)
        log_likelihood, kl, has_kl = target["fn"].loss_terms(
            model_trace, guide_trace, self.objective, self.num_samples
        )
        target["log_prob"] = _scale_values(log_likelihood, target)
        for name, value in kl.items():
            if name in guide_trace.nodes:  # a block that the guide leaves out keeps its prior
                site = guide_trace.nodes[name]
                site[KL] = _scale_values(value, site)
        return [] if has_kl else list(kl)

    def _plain(self, model_trace: Trace, guide_trace: Trace, latents: list[str]) -> Tensor:
        """The sampled bound, its terms made in the order in which ``Trace_ELBO`` makes them.

        Sums of floating-point numbers, and of their gradients, depend on that order.
        """
        terms = [
            _log_prob(site)  # the value is the guide's, whatever its prior
            for name, site in model_trace.nodes.items()
            if site["type"] == "sample" and (site["is_observed"] or name in latents)
        ]
        entropies = [scored(guide_trace.nodes[name]) for name in latents]
        elbo = torch.stack([term.sum() for term in terms]).sum()
        return elbo - sum(term.sum() for term in entropies)

    def _weighted(self, model_trace: Trace, guide_trace: Trace, latents: list[str]) -> Tensor:
        """Log-likelihood less the weighted, floored KL of each site."""
        observed = (
            scored(site).sum()
            for site in model_trace.nodes.values()
            if site["type"] == "sample" and site["is_observed"]
        )
        elbo = torch.stack(list(observed)).sum()
        floor = self.free_bits * _scaled_tokens(model_trace) if self.free_bits else None
        kls = []
        for name in latents:
            site = guide_trace.nodes[name]
            kl = self.kl(model_trace, site)
            if floor is not None and SENTENCES in {f.name for f in site["cond_indep_stack"]}:
                kl = torch.maximum(kl.sum(), floor)
            kls.append(kl)
        # one operation for all blocks where each had its own
        for same_shape in _group(kls, lambda kl: kl.shape):
            total = torch.stack(same_shape).sum()
            elbo = elbo - (total if self.kl_weight == 1.0 else self.kl_weight * total)
        return elbo

    def tied(self, model_trace: Trace, site: dict[str, Any]) -> bool:
        """Whether the log-ratio of a site of the guide is 0 with no gradient."""
        return _skipped(model_trace.nodes[site["name"]], site)

    def kl(self, model_trace: Trace, site: dict[str, Any]) -> Tensor:
        """The scaled KL of a site of the guide, one value a sentence."""
        precomputed: Tensor | None = site.get(KL)
        return (
            self._kl(model_trace.nodes[site["name"]]["fn"], site)
            if precomputed is None
            else precomputed
        )

    def _kl(self, prior: Any, site: dict[str, Any]) -> Tensor:
        kl = closed_form(site["fn"], prior) if self.analytic else None
        if kl is not None and not site["fn"].has_rsample:
            scored(site)  # the likelihood has a score-function gradient, whatever the KL
        if kl is None:
            log_prior = scale_and_mask(prior.log_prob(site["value"]), site["scale"], site["mask"])
            return scored(site) - log_prior
        scaled: Tensor = scale_and_mask(kl, site["scale"], site["mask"])
        return scaled

    def loss(self, model: Any, guide: Any, *args: Any, **kwargs: Any) -> float:
        """The negative objective, as a number."""
        return self.differentiable_loss(model, guide, *args, **kwargs).item()

    def differentiable_loss(self, model: Any, guide: Any, *args: Any, **kwargs: Any) -> Tensor:
        """The negative objective, as a tensor to take gradients of.

        Raises:
            ValueError: Model and guide are swapped, the guide is of another model, or has a site of
                its own or the target.
        """
        check_own_model(model, guide)
        with one_at_a_time():
            particles = [
                -self._objective(*pair) for pair in self._get_traces(model, guide, args, kwargs)
            ]
        return torch.stack(particles).sum() / self.num_particles

    def loss_and_grads(self, model: Any, guide: Any, *args: Any, **kwargs: Any) -> Tensor:
        """Takes the gradients and returns the loss as a tensor: nothing is copied to the host."""
        loss = self.differentiable_loss(model, guide, *args, **kwargs)
        if loss.requires_grad:
            loss.backward(retain_graph=self.retain_graph)
        return loss.detach()


def _scale_values(values: Tensor, site: dict[str, Any]) -> Tensor:
    """Applies the scale and the mask of a site; a value shared by particles counts for each."""
    shape = torch.broadcast_shapes(values.shape, site["fn"].batch_shape)
    scaled: Tensor = scale_and_mask(values.expand(shape), site["scale"], site["mask"])
    return scaled


class _EagerKL(Messenger):
    """Computes the KL of a block's logits when they are sampled, and frees its distributions.

    The terms of a closed form that only depend on the scales of heads are computed for all blocks
    at once, when all are sampled.
    """

    def __init__(self, objective: Head_ELBO) -> None:
        super().__init__()
        self.objective = objective
        self.parts: dict[str, PartsOfKL] = {}

    def _pyro_post_sample(self, msg: Any) -> None:
        # entered around the guide, so that this runs before the guide's trace records the site
        infer = msg.get(GUIDE_INFER, msg["infer"])
        prior, posterior = infer.get("prior"), msg["fn"]
        are_heads = isinstance(prior, HeadVariable) and (
            posterior is prior or isinstance(posterior, HeadVariable)
        )
        if msg["is_observed"] or not are_heads:
            return
        prior = prior.expand(posterior.batch_shape)
        if posterior is not prior:
            parts = parts_of_kl(posterior, prior) if self.objective.analytic else None
            if parts is None:
                msg[KL] = self.objective._kl(prior, msg)
            else:
                self.parts[msg["name"]] = parts
        msg["fn"] = infer["prior"] = _Dropped(msg["name"])

    def write(self, guide_trace: Trace) -> None:
        """Writes the KLs that were left to the end into their sites."""
        sites = [guide_trace.nodes[name] for name in self.parts]
        for group in _group(sites, self._shape_of):
            kls = stack_kls([self.parts[site["name"]] for site in group])
            kls = scale_and_mask(kls, group[0]["scale"])
            for site, kl in zip(group, kls.unbind(), strict=True):
                site[KL] = scale_and_mask(kl, mask=site["mask"])

    def _shape_of(self, site: dict[str, Any]) -> tuple[Any, ...]:
        """What sites have in common whose KLs are computed at once."""
        parts, scale = self.parts[site["name"]], site["scale"]
        same_scale = id(scale) if isinstance(scale, Tensor) else scale
        return parts.ratio.shape, parts.pairs.shape, same_scale


class _Dropped:
    """Replaces the freed distributions of a site; attribute access raises an error."""

    batch_shape = torch.Size()

    def __init__(self, site: str) -> None:
        self.site = site

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"site {self.site!r}: its distributions were freed once its KL was computed; set "
            "needs_trace = True in a guide that uses them later"
        )


Item = TypeVar("Item")


def _group(items: Iterable[Item], key: Callable[[Item], Hashable]) -> list[list[Item]]:
    """The items of each value of a key, in the order of the first of each."""
    groups: dict[Hashable, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return [*groups.values()]


def _log_prob(site: dict[str, Any]) -> Tensor:
    """The scaled log-density of a site, one value a sentence."""
    if "log_prob" not in site:
        values = site["fn"].log_prob(site["value"])
        site["log_prob"] = scale_and_mask(values, site["scale"], site["mask"])
    log_prob: Tensor = site["log_prob"]
    return log_prob


def scored(site: dict[str, Any]) -> Tensor:
    """The scaled log-density of a site that is observed, or whose value has its gradient."""
    log_prob = _log_prob(site)
    if not (site["is_observed"] or site["fn"].has_rsample) and log_prob.requires_grad:
        raise ValueError(
            f"site {site['name']!r} is learned but not reparameterised: "
            "train it with pyro.infer.Trace_ELBO, which takes score-function gradients"
        )
    return log_prob


def _skipped(site: dict[str, Any], posterior: dict[str, Any]) -> bool:
    """Whether a site's log-ratio is 0 with no gradient: its posterior is its prior."""
    if KL in posterior or site["fn"] is not posterior["fn"]:
        return False
    if not (isinstance(site["fn"], _Dropped) or site["fn"].has_rsample):
        scored(site)  # the likelihood has a score-function gradient, whatever the KL
    return True


def _scaled_tokens(model_trace: Trace) -> Tensor:
    """Target tokens of all particles, scaled and masked as their likelihood is."""
    site = model_trace.nodes[TARGET]
    tokens = site["fn"].valid.sum(-1).expand(site["fn"].batch_shape)
    counted: Tensor = scale_and_mask(tokens, 1.0, site["mask"])
    return counted.sum() * site["scale"]
