r"""Exact sums over all subsets of heads: the evidence, and every guide's bound and gap.

With :math:`\ell(b) = \log p(y \mid x, b)` of a sentence,

.. math:: \log p(y \mid x) = \log \sum_b p(b) e^{\ell(b)}, \qquad
          p(b \mid x, y) \propto p(b) e^{\ell(b)},

and the bound of a guide is :math:`\sum_b q(b) (\ell(b) + \log p(b) - \log q(b))`. Its gap to the
evidence is :math:`\mathrm{KL}(q \,\|\, p(\cdot \mid x, y))`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from pyro.poutine import Trace
from torch import Tensor

from latentheads.latents.bernoulli_heads.subsets import (
    HeadSubsets,
    SubsetTable,
    all_subsets,
    extend_table,
    joint_conditionals,
    joint_table,
)
from latentheads.latents.summed_out import TableEnumeration, expectation
from latentheads.names import TARGET


@dataclass(frozen=True, repr=False)
class SubsetEnumeration(TableEnumeration):
    r"""All subsets of the heads of a pass, under the model and under its guide.

    Column number :math:`\sum_h b_h 2^h` of a table is the subset b: of two heads the columns are
    none, the first alone, the second alone, both. Heads of lower blocks come first.

    Attributes:
        log_likelihoods: Log p(y | x, b) of every sentence and subset.
        prior: The prior of every block.
        posterior: The guide's posterior of every block.
        sites: The blocks' sample sites.
        tied: The sites whose posterior is the prior itself.
    """

    log_likelihoods: Float[Tensor, "*batch subset"]
    prior: Sequence[SubsetTable]
    posterior: Sequence[SubsetTable]
    sites: Sequence[str]
    tied: Sequence[str] = ()

    @property
    def heads(self) -> list[int]:
        """Heads of every block."""
        return [table.heads for table in self.prior]

    def _extend(self, tables: Sequence[SubsetTable]) -> list[Float[Tensor, "*batch subset"]]:
        return [extend_table(table, sum(self.heads)) for table in tables]

    @cached_property
    def log_prior(self) -> Float[Tensor, "*batch subset"]:  # type: ignore[override]
        """Log-probability of every subset under the prior."""
        return joint_table(self.prior)

    @cached_property
    def log_joint(self) -> Float[Tensor, "*batch subset"]:  # type: ignore[override]
        """Log p(y, b | x) of every subset."""
        return super().log_joint

    @cached_property
    def log_q(self) -> Float[Tensor, "*batch subset"]:  # type: ignore[override]
        """Log-probability of every subset under the guide."""
        return joint_table(self.posterior).expand_as(self.log_likelihoods)

    def inclusion(self) -> dict[str, Float[Tensor, "*batch head"]]:
        """Each head's probability to be active: ``prior``, ``guide`` and exact ``posterior``."""
        log_probs = {
            "prior": self.log_prior.expand_as(self.log_joint),
            "guide": self.log_q,
            "posterior": self.log_posterior,
        }
        subsets = all_subsets(sum(self.heads), self.log_joint)
        return {name: values.exp() @ subsets for name, values in log_probs.items()}

    def exact_tables(self) -> list[SubsetTable]:
        """The exact posterior of every block, given lower ones: Bayes' rule."""
        return joint_conditionals(self.log_joint, self.heads)

    def _kl(
        self, log_weights: Tensor, q: Sequence[SubsetTable], p: Sequence[SubsetTable]
    ) -> dict[str, Float[Tensor, "*batch"]]:
        pairs = zip(self._extend(q), self._extend(p), strict=True)
        values = [expectation(log_weights, log_q - log_p) for log_q, log_p in pairs]
        return dict(zip(self.sites, values, strict=True))

    def kl(self) -> dict[str, Float[Tensor, "*batch"]]:
        """The KL of every block, in expectation over lower ones; exactly 0 if q is p."""
        kl = self._kl(self.log_q, self.posterior, self.prior)
        return {n: torch.zeros_like(v) if n in self.tied else v for n, v in kl.items()}

    def gap(self) -> dict[str, Float[Tensor, "*batch"]]:
        return self._kl(self.log_q, self.posterior, self.exact_tables())

    def detach_model(self) -> SubsetEnumeration:
        """Detaches the model, and posteriors that are the prior: gradients reach the guide only."""
        named = zip(self.sites, self.posterior, strict=True)
        return replace(
            self,
            log_likelihoods=self.log_likelihoods.detach(),
            prior=[_detached(table) for table in self.prior],
            posterior=[_detached(t) if name in self.tied else t for name, t in named],
        )


def _detached(table: SubsetTable) -> SubsetTable:
    return replace(table, log_probs=table.log_probs.detach())


def posterior_sites(model_trace: Trace, guide_trace: Trace) -> dict[str, dict[str, Any]]:
    """The guide's sites of all blocks, from the lowest; the model's if the guide has none.

    Raises:
        ValueError: A posterior is another distribution, or has a table of other blocks.
    """
    sites = {}
    for name, site in model_trace.nodes.items():
        if site["type"] == "sample" and isinstance(site["fn"], HeadSubsets):
            sites[name] = guide_trace.nodes.get(name, site)
            posterior, prior = sites[name]["fn"], site["fn"]
            if not isinstance(posterior, HeadSubsets):
                kind = type(posterior).__name__
                raise ValueError(f"site {name!r}: the posterior must be HeadSubsets, got {kind}")
            if posterior.table.first != prior.table.first:  # other bits than those of its heads
                raise ValueError(
                    f"site {name!r}: first must be {prior.table.first}, the number of heads in "
                    f"lower blocks, got {posterior.table.first}"
                )
    return sites


def enumerate_subsets(
    model_trace: Trace, guide_trace: Trace, for_bound: bool = False
) -> SubsetEnumeration:
    """Enumerates all subsets of the heads of a pass.

    Args:
        model_trace: The model's trace.
        guide_trace: The guide's trace; a block without a site keeps its prior.
        for_bound: Whether the gradient of the expected log-likelihood will be taken.
    """
    target, sites = model_trace.nodes[TARGET], posterior_sites(model_trace, guide_trace)
    priors = {name: model_trace.nodes[name]["fn"] for name in sites}
    posterior = [site["fn"].table for site in sites.values()]
    expected_gradient = joint_table(posterior).exp() if for_bound else None
    return SubsetEnumeration(
        target["fn"].gated_pass.log_probs_of_subsets(target["value"], expected_gradient),
        [prior.table for prior in priors.values()],
        posterior,
        list(sites),
        [name for name, site in sites.items() if site["fn"] is priors[name]],
    )
