"""Names the parameter or the site that makes an objective or a gradient non-finite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyro
import torch
from torch import Tensor, nn

from latentheads.batch import Batch
from latentheads.distributions.autoregressive import CholeskyHeads
from latentheads.guide import ModelGuide
from latentheads.inference.bound import closed_form, traces
from latentheads.model import HeadModel


def describe_non_finite(model: HeadModel, guide: ModelGuide, batches: Sequence[Batch]) -> str:
    """Returns the first parameter or site that is not finite, as text for an error.

    Args:
        model: The model.
        guide: Its guide.
        batches: The batches of the step, whose heads are sampled again; empty: only parameters are
            checked.
    """
    if fault := describe_non_finite_parameter(model=model, guide=guide):
        return fault
    for batch in batches:
        device_batch = batch.to(model.device)
        with torch.no_grad(), pyro.validation_enabled(False):
            model_trace, guide_trace = traces(model, guide, device_batch)
            for name, site in model_trace.nodes.items():
                if site["type"] != "sample" or site["infer"].get("_do_not_trace"):
                    continue
                fault = _describe_non_finite_site(
                    site["fn"], guide_trace.nodes.get(name, site)["fn"], site
                )
                if fault:
                    return f"site {name}: {fault}"
    again = ", though every site is in a second draw" if batches else ""
    return f"the objective is not finite{again}"


def describe_non_finite_parameter(**modules: nn.Module) -> str:
    """Returns the first parameter that is not finite, as text; empty if there is none."""
    for kind, module in modules.items():
        for name, parameter in module.named_parameters():
            if not parameter.isfinite().all():
                return f"the {kind}'s parameter {name} is not finite"
    return ""


def describe_non_finite_gradient(model: HeadModel, guide: ModelGuide) -> str:
    """Returns the first parameter whose gradient is not finite, as text; empty if there is none."""
    for kind, module in (("model", model), ("guide", guide)):
        for name, parameter in module.named_parameters():
            if parameter.grad is not None and not parameter.grad.isfinite().all():
                return f"the gradient of the {kind}'s parameter {name} is not finite"
    return ""


def _describe_non_finite_site(prior: Any, posterior: Any, site: dict[str, Any]) -> str:
    """What is not finite at a site; empty if everything is."""
    value = site["value"]
    distributions = {"its": prior}
    if posterior is not prior:
        distributions = {"the prior's": prior, "the posterior's": posterior}
    for owner, distribution in distributions.items():
        scale = _get_scale(distribution)
        if scale is not None and not (scale > 0).all():
            return f"{owner} scale is not positive"
    if not (site["is_observed"] or value.isfinite().all()):
        return "a sampled value is not finite"
    for owner, distribution in distributions.items():
        if not distribution.log_prob(value).isfinite().all():
            return f"{owner} log-density is not finite"
    kl = None if posterior is prior else closed_form(posterior, prior)
    return "" if kl is None or kl.isfinite().all() else "its KL is not finite"


def _get_scale(distribution: Any) -> Tensor | None:
    """The standard deviations of a distribution, if it has any."""
    if isinstance(distribution, CholeskyHeads):
        return distribution.factor.diagonal()
    scale = getattr(getattr(distribution, "base_dist", distribution), "scale", None)
    return None if scale is None else torch.as_tensor(scale)
