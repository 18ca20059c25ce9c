"""More heads than a table holds: samplers and guides of several layers of SmolLM2 jointly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from latentheads.contrib.circuits import (
    CircuitGuide,
    SubsetDensity,
    SubsetScorer,
    block_tables,
    fit_guide,
    gibbs,
    smc,
)
from latentheads.contrib.circuits.guides import STRUCTURES
from latentheads.contrib.circuits.samplers import Density
from latentheads.contrib.heads.interventions import Counterfactual
from latentheads.experiments.studies.circuits.tables import GIVEN, PROMPTS
from latentheads.experiments.studies.circuits.tasks import make_prompts
from latentheads.latents.bernoulli_heads.subsets import all_subsets

CHAINS = 4
"""Chains of Gibbs sampling."""

WRITTEN = 15
"""Subsets that are scored before they are written."""


@dataclass(frozen=True)
class Sizes:
    """How long samplers and guides run.

    Attributes:
        sweeps: Sweeps of each chain of Gibbs sampling, after a fifth as many.
        particles: Particles of sequential Monte Carlo.
        repeats: Its repeats.
        steps: Optimiser steps of a guide.
        samples: Samples that a guide's bound is estimated by.
    """

    sweeps: int = 30
    particles: int = 60
    repeats: int = 8
    steps: int = 2000
    samples: int = 1000


@dataclass
class CachedDensity:
    """A density whose values are kept in a file, so that a run goes on where it was stopped.

    Attributes:
        density: The log-density.
        path: The file, with a line for each subset.
        values: Its log-densities.
    """

    density: Density
    path: Path
    values: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            for line in self.path.read_text("utf-8").splitlines():
                key, value = line.split()
                self.values[key] = float(value)

    def __call__(self, gates: Float[Tensor, "subset head"]) -> Float[Tensor, " subset"]:
        """The log-density of subsets."""
        keys = ["".join(map(str, row)) for row in gates.long().tolist()]
        missing = [key for key in dict.fromkeys(keys) if key not in self.values]
        for start in range(0, len(missing), WRITTEN):
            subsets = missing[start : start + WRITTEN]
            values = self.density(_gates(subsets)).tolist()
            self.values.update(zip(subsets, values, strict=True))
            with self.path.open("a", encoding="utf-8") as file:
                file.writelines(f"{key} {self.values[key]!r}\n" for key in subsets)
        return torch.tensor([self.values[key] for key in keys], dtype=torch.float64)

    def scored(self) -> dict[str, Any]:
        """The sum over all subsets that were scored, which is at most the evidence."""
        values = torch.tensor(list(self.values.values()), dtype=torch.float64)
        inclusion = values.softmax(0) @ _gates(list(self.values))
        return {
            "subsets": len(values),
            "log_evidence": float(values.logsumexp(0)),
            "inclusion": inclusion.tolist(),
        }


def joint_posterior(
    network: Any,
    tokenizer: Any,
    task: str,
    layers: Sequence[int],
    penalty: float,
    tau: float,
    folder: Path,
    sizes: Sizes = Sizes(),
) -> dict[str, Any]:
    """Gibbs sampling, sequential Monte Carlo and guides of all heads of several layers.

    Args:
        network: The network.
        tokenizer: Its tokenizer.
        task: The task, of which the first half of the prompts are given.
        layers: The layers.
        penalty: Log-likelihood of a prompt that a head has to bring.
        tau: The temperature.
        folder: Where log-densities are kept.
        sizes: How long samplers and guides run.
    """
    own, paired, _ = make_prompts(tokenizer, task, PROMPTS[task])
    given = torch.arange(GIVEN)
    intervention = Counterfactual(network, paired[given].inputs)
    names = [f"decoder.{layer}.self" for layer in sorted(layers)]
    scorer = SubsetScorer(network, own[given], names, intervention)
    setting = f"{task}-{'-'.join(map(str, sorted(layers)))}-{penalty:g}-{tau:g}"
    density = CachedDensity(
        SubsetDensity(scorer, penalty, tau), folder / f"densities-{setting}.txt"
    )
    heads = [scorer.addresses[name].block.heads for name in names]
    layer_blocks = _blocks(heads)
    tables = block_tables(density, layer_blocks)
    alone = torch.cat(
        [
            table.exp() @ all_subsets(len(block), table)
            for block, table in zip(layer_blocks, tables, strict=True)
        ]
    )
    print(f"{len(density.values)} subsets: tables of layers", flush=True)
    record: dict[str, Any] = {
        "task": task,
        "layers": sorted(layers),
        "intervention": intervention.name,
        "penalty": penalty,
        "tau": tau,
        "prompts": GIVEN,
        "labels": scorer.labels,
        "layers_alone": alone.tolist(),
        "gibbs": {
            "random": _run_gibbs(density, heads, sizes),
            "all heads": _run_gibbs(density, heads, sizes, torch.ones(sum(heads))),
        },
        "smc": _run_smc(density, layer_blocks, tables, sizes),
        "guides": {name: _run_guide(density, heads, name, alone, sizes) for name in STRUCTURES},
    }
    return {**record, "scored": density.scored()}


def _run_gibbs(
    density: CachedDensity, heads: Sequence[int], sizes: Sizes, start: Tensor | None = None
) -> dict[str, Any]:
    """Chains over blocks of three heads, each given all others."""
    blocks = [block[i : i + 3] for block in _blocks(heads) for i in range(0, len(block), 3)]
    samples = gibbs(density, blocks, sizes.sweeps, CHAINS, sizes.sweeps // 5, start=start)
    print(f"{len(density.values)} subsets: Gibbs sampling", flush=True)
    return {
        "sweeps": sizes.sweeps,
        "burn_in": sizes.sweeps // 5,
        "inclusion": samples.inclusion.tolist(),
        "chains": samples.by_chain.mean(1).tolist(),
    }


def _run_smc(
    density: CachedDensity, blocks: list[list[int]], tables: list[Tensor], sizes: Sizes
) -> dict[str, Any]:
    """Repeats of sequential Monte Carlo, whose proposals are tables of layers."""
    runs = []
    for seed in range(sizes.repeats):
        samples = smc(density, blocks, sizes.particles, tables=tables, seed=seed)
        runs.append(
            {
                "log_evidence": samples.log_evidence,
                "inclusion": samples.inclusion.tolist(),
                "acceptance": samples.acceptance,
                "temperatures": samples.temperatures,
            }
        )
        print(f"{len(density.values)} subsets: SMC {samples.log_evidence}", flush=True)
    return {"particles": sizes.particles, "runs": runs}


def _run_guide(
    density: CachedDensity, heads: Sequence[int], structure: str, start: Tensor, sizes: Sizes
) -> dict[str, Any]:
    """The estimated bound of a guide that starts at the marginals of single layers."""
    torch.manual_seed(0)
    guide = CircuitGuide(heads, structure)
    guide.logits.data.copy_(start.clamp(0.02, 0.98).logit())  # a sum of a table may exceed 1
    bounds = fit_guide(guide, density, sizes.steps, learning_rate=0.1)
    with torch.no_grad():
        distribution = guide.distribution()
        gates = distribution.sample(torch.Size([sizes.samples]))
        log_weights = density(gates) - distribution.log_prob(gates)
    print(f"{len(density.values)} subsets: {structure} {float(log_weights.mean())}", flush=True)
    return {
        "elbo": float(log_weights.mean()),
        "elbo_error": float(log_weights.std()) / math.sqrt(len(log_weights)),
        "importance": float(log_weights.logsumexp(0)) - math.log(len(log_weights)),
        "inclusion": gates.mean(0).tolist(),
        "steps": bounds[:: max(1, len(bounds) // 10)],
    }


def _blocks(heads: Sequence[int]) -> list[list[int]]:
    """The heads of each layer."""
    return [part.tolist() for part in torch.arange(sum(heads)).split(list(heads))]


def _gates(keys: Sequence[str]) -> Float[Tensor, "subset head"]:
    return torch.tensor([[float(gate) for gate in key] for key in keys], dtype=torch.float64)
