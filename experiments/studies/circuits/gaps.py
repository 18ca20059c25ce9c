"""Exact gaps of guides of a table of subsets, and the table as a density for samplers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from jaxtyping import Float
from torch import Tensor

from latentheads.contrib.circuits import CircuitGuide, CircuitPosterior, exact_bound, fit_guide
from latentheads.latents.bernoulli_heads.subsets import subset_index


def guide_gaps(
    posterior: CircuitPosterior, heads: Sequence[int], structures: Iterable[str]
) -> dict[str, dict[str, float]]:
    """The bound, gap and KL divergence of a guide of each structure, which starts at the marginals.

    Args:
        posterior: The posterior.
        heads: Heads of every layer.
        structures: The structures.
    """
    gaps = {}
    for structure in structures:
        guide = CircuitGuide(heads, structure)
        guide.logits.data.copy_(posterior.log_odds.clamp(-15, 15))
        fit_guide(guide, posterior.log_density, steps=150, learning_rate=0.2)
        bound = exact_bound(guide, posterior.log_density)
        gaps[structure] = {"elbo": bound.elbo, "gap": bound.gap, "kl": bound.divergence}
    return gaps


def table_density(log_density: Float[Tensor, " subset"]) -> Callable[[Tensor], Tensor]:
    """The log-density of subsets, from a table of all."""
    return lambda gates: log_density[subset_index(gates)]
