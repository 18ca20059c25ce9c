"""Finds the parameter or the site at fault where an objective or a gradient is not finite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyro
import torch
from torch import Tensor

from latentheads.batch import Batch
from latentheads.distributions import CholeskyHeads
from latentheads.guide import ModelGuide
from latentheads.inference.bound import closed_form, traces
from latentheads.model import HeadModel

__all__ = ["find_non_finite", "find_non_finite_states"]


def find_non_finite(model: HeadModel, guide: ModelGuide, batches: Sequence[Batch]) -> str:
    """Says where an objective stops being finite: the first parameter or site that is not.

    Args:
        model: The model.
        guide: Its guide.
        batches: Those of the update; heads are drawn anew; none: parameters alone are looked at.
    """
    for kind, module in (("model", model), ("guide", guide)):
        for name, parameter in module.named_parameters():
            if not parameter.isfinite().all():
                return f"the {kind}'s parameter {name} is not finite"
    for batch in batches:
        here = batch.to(model.device)
        with torch.no_grad(), pyro.validation_enabled(False):
            model_trace, guide_trace = traces(model, guide, here)
            for name, site in model_trace.nodes.items():
                if site["type"] != "sample" or site["infer"].get("_do_not_trace"):
                    continue
                fault = _find_non_finite_of(
                    site["fn"], guide_trace.nodes.get(name, site)["fn"], site
                )
                if fault:
                    return f"site {name}: {fault}"
    again = ", though every site is in a second draw" if batches else ""
    return f"the objective is not finite{again}"


def find_non_finite_states(model: HeadModel, guide: ModelGuide) -> str:
    """Says whose gradient is not finite, the first of them; nothing where all are, if long."""
    for kind, module in (("model", model), ("guide", guide)):
        for name, parameter in module.named_parameters():
            if parameter.grad is not None and not parameter.grad.isfinite().all():
                return f"the gradient of the {kind}'s parameter {name} is not finite"
    return ""


def _find_non_finite_of(prior: Any, posterior: Any, site: dict[str, Any]) -> str:
    """The fault of a site; empty where it has none."""
    value = site["value"]
    laws = {"its": prior}
    if posterior is not prior:
        laws = {"the prior's": prior, "the posterior's": posterior}
    for whose, law in laws.items():
        scale = _read_scale(law)
        if scale is not None and not (scale > 0).all():
            return f"{whose} scale is not positive"
    if not (site["is_observed"] or value.isfinite().all()):
        return "a drawn value is not finite"
    for whose, law in laws.items():
        if not law.log_prob(value).isfinite().all():
            return f"{whose} log-density is not finite"
    kl = None if posterior is prior else closed_form(posterior, prior)
    return "" if kl is None or kl.isfinite().all() else "its KL is not finite"


def _read_scale(law: Any) -> Tensor | None:
    """The standard deviations of a law, where it has any."""
    if isinstance(law, CholeskyHeads):
        return law.factor.diagonal()
    scale = getattr(getattr(law, "base_dist", law), "scale", None)
    return None if scale is None else torch.as_tensor(scale)
