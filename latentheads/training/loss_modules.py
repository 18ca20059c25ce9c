"""A loss, a model and a guide as one module, which torch optimisers train.

``Head_ELBO``, ``Trace_ELBO`` and ``TraceMeanField_ELBO`` are joined with a pair as Pyro joins
them. The others need a hand: ``RenyiELBO`` and ``TraceGraph_ELBO`` have no ``differentiable_loss``,
and ``TraceEnum_ELBO`` takes no guide that answers within the model's own pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from pyro import poutine
from pyro.infer import ELBO, RenyiELBO, TraceEnum_ELBO
from pyro.infer.elbo import ELBOModule
from torch import Tensor

from latentheads.batch import Batch
from latentheads.guide import ModelGuide
from latentheads.inference.bound import traces
from latentheads.inference.objective import Head_ELBO
from latentheads.model import HeadModel
from latentheads.names import SENTENCES
from latentheads.passes import one_at_a_time


class LossModule(ELBOModule):
    """``loss(model, guide)``, of which a call on a batch gives a loss to differentiate, in nats.

    ``RenyiELBO`` weighs the samples of each sentence: it sees the sentences of the batch alone, and
    its loss is scaled to the corpus afterwards. Pyro's plate would scale the logarithms of weights.
    """

    def forward(self, batch: Batch) -> Tensor:
        """The loss, scaled from the batch to its corpus."""
        scale = 1.0
        if isinstance(self.elbo, RenyiELBO):
            scale = batch.size / len(batch)
            batch = replace(batch, index=None, corpus_size=0)
        with one_at_a_time():
            return self._loss_of(batch) * scale

    def _loss_of(self, batch: Batch) -> Tensor:
        enumerates = isinstance(self.elbo, TraceEnum_ELBO)
        guide = as_function(self.guide) if enumerates else self.guide
        if has_differentiable_loss(self.elbo):
            loss: Tensor = self.elbo.differentiable_loss(self.model, guide, batch)
            return loss
        return self._take_gradients(guide, batch)

    def _take_gradients(self, guide: Any, batch: Batch) -> Tensor:
        """Lets a loss take its gradients itself, and hands them on in the backward pass."""
        parameters = [p for p in self.parameters() if p.requires_grad]
        # grad holds the sum over earlier micro-batches, to which this loss would add its own
        accumulated = [parameter.grad for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None
        try:
            loss = self.elbo.loss_and_grads(self.model, guide, batch)  # type: ignore[attr-defined]
            gradients = [parameter.grad for parameter in parameters]
        finally:
            for parameter, gradient in zip(parameters, accumulated, strict=True):
                parameter.grad = gradient
        value = torch.as_tensor(loss, dtype=torch.float64, device=batch.target.device)
        differentiable: Tensor = _Gradients.apply(value, gradients, *parameters)  # type: ignore[no-untyped-call]
        return differentiable


class _Gradients(torch.autograd.Function):
    """A value whose gradients are known."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: Sequence[Tensor | None], *_: Tensor) -> Tensor:
        ctx.gradients = gradients
        return value.clone()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Any:
        (factor,) = upstream
        return None, None, *(None if g is None else g * factor.to(g) for g in ctx.gradients)


def has_differentiable_loss(loss: ELBO) -> bool:
    """Whether a loss can be differentiated, and does not take its gradients itself."""
    return hasattr(loss, "differentiable_loss")


def as_function(guide: ModelGuide) -> Callable[[Batch], Any]:
    """A guide that runs before the model, for a loss that takes no other."""

    def sample(batch: Batch) -> Any:
        return poutine.block(guide, hide_fn=lambda site: site.get("is_observed", False))(batch)

    return sample


def make_loss_module(loss: ELBO, model: HeadModel, guide: ModelGuide) -> ELBOModule:
    """Makes the module of a loss, a model and a guide."""
    if isinstance(loss, Head_ELBO):
        return loss(model, guide)
    return LossModule(model, guide, loss)


def validate_loss(module: ELBOModule, batch: Batch) -> None:
    """Validates that a loss can train a pair, under Pyro's validation."""
    loss, model, guide = module.elbo, module.model, module.guide
    if isinstance(loss, Head_ELBO):
        with torch.no_grad():
            module(batch)
        return
    with torch.no_grad():
        guide_trace = traces(model, guide, batch)[1]
    sites = [site for site in guide_trace.nodes.values() if site["type"] == "sample"]
    with _named(loss):
        _check_enumeration(loss, sites)
        _check_weights(loss, sites)
        module(batch)


@contextmanager
def _named(loss: ELBO) -> Iterator[None]:
    """Puts the name of a loss before the reason for which it cannot train a pair."""
    try:
        yield
    except (AssertionError, NotImplementedError, ValueError) as reason:
        message = str(reason).partition("Trace Shapes:")[0]
        line = " ".join(message.split()) or type(reason).__name__
        raise ValueError(
            f"{type(loss).__name__} cannot train this pair: {line.rstrip('.')}; "
            "Head_ELBO trains all latents of the library"
        ) from reason


def _check_enumeration(loss: ELBO, sites: Sequence[dict[str, Any]]) -> None:
    """Validates that a site is enumerated: otherwise all would be sampled."""
    marked = any(site["infer"].get("enumerate") for site in sites)
    if isinstance(loss, TraceEnum_ELBO) and not marked:
        raise ValueError("no latent is marked with infer={'enumerate': 'parallel'}")


def _check_weights(loss: ELBO, sites: Sequence[dict[str, Any]]) -> None:
    """Validates that importance weights are those of a sentence, and that they train the guide."""
    if not isinstance(loss, RenyiELBO):
        return
    for site in sites:
        if SENTENCES not in {frame.name for frame in site["cond_indep_stack"]}:
            raise ValueError(
                f"site {site['name']!r} is shared by all sentences, and samples are weighed for "
                "each sentence"
            )
        learned = site["fn"] is not site["infer"].get("prior")
        if learned and loss.alpha == 0 and not site["fn"].has_rsample:
            raise ValueError(
                f"site {site['name']!r} is not reparameterised, and with alpha=0 its posterior "
                "gets no gradient"
            )
