"""The probability of each head with a gate to be active in a sentence."""

from __future__ import annotations

from latentheads.batch import Batch
from latentheads.inference.bound import terms
from latentheads.inference.evaluation import eval_no_grad
from latentheads.latents.bernoulli_heads.enumeration import SubsetEnumeration
from latentheads.latents.bernoulli_heads.latent import BernoulliHeads
from latentheads.noise import fixed_noise
from latentheads.runs.run import Run

Inclusion = dict[str, dict[str, list[float]]]
"""Of every head, by block and by distribution: prior, guide and exact posterior."""


def has_gates(run: Run) -> bool:
    """Whether heads have gates of each sentence."""
    return run.model.find_latent(BernoulliHeads) is not None


def gather_inclusion(run: Run, batch: Batch) -> list[Inclusion]:
    """The inclusion probabilities of each sentence of a batch, from the sum over all subsets.

    Returns:
        Those of each sentence; empty for a run without gates.
    """
    latent = run.model.find_latent(BernoulliHeads)
    if latent is None:
        return [{} for _ in range(len(batch))]
    device, pair = run.model.device, (run.model, run.guide)
    with eval_no_grad(*pair), fixed_noise(run.settings.seed, device):
        enumeration = terms(*pair, batch.to(device)).enumeration
    assert isinstance(enumeration, SubsetEnumeration)
    parts = {n: p.double().split(latent.heads, -1) for n, p in enumeration.inclusion().items()}
    return [
        {
            block.name: {name: part[index][sentence].tolist() for name, part in parts.items()}
            for index, block in enumerate(latent.addresses)
        }
        for sentence in range(len(batch))
    ]
