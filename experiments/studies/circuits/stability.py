"""Sets of equal faithfulness by several methods, from halves of prompts: overlap, size, loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from latentheads.contrib.circuits import CircuitPosterior
from latentheads.experiments.studies.circuits.intervals import ratio_interval
from latentheads.experiments.studies.circuits.tables import GIVEN, RESAMPLES, Key
from latentheads.experiments.studies.subsets.overlap import mean_jaccard
from latentheads.latents.bernoulli_heads.subsets import subset_index

FAITHFUL = 0.25
"""A set is faithful if it loses at most so much of what the layer without heads loses."""

METHODS = (
    "posterior",
    "smallest subset",
    "attribution",
    "integrated",
    "gradient",
    "gates",
    "single ablation",
    "random",
)


def stability(
    posteriors: Mapping[Key, CircuitPosterior],
    attributions: Mapping[str, Mapping[str, Tensor]],
    tau: float,
    penalty: float,
) -> dict[str, Any]:
    """Sets of equal faithfulness from random halves of the prompts: overlap, size, other loss.

    Two halves of 32 prompts share eight in the mean, so that sets overlap more than those of
    prompts that are all new.
    """
    layers: list[dict[str, Any]] = []
    for (task, layer, _), posterior in posteriors.items():
        loss = -posterior.log_likelihoods
        allowed = FAITHFUL * float(loss[:, 0].mean())
        generator = torch.Generator().manual_seed(layer)
        sets: dict[str, list[Tensor]] = {method: [] for method in METHODS}
        losses: dict[str, list[float]] = {method: [] for method in METHODS}
        for _ in range(RESAMPLES):
            order = torch.randperm(len(loss), generator=generator)
            rows, rest = order[:GIVEN], order[GIVEN:]
            own = {name: x[rows, layer] for name, x in attributions[task].items()}
            given = replace(posterior.on(rows), penalty=penalty, tau=tau)
            for method in METHODS:
                chosen = _choose(method, given, own, allowed, generator)
                sets[method].append(chosen)
                index = int(subset_index(chosen))
                losses[method].append(float(loss[rest, index].mean()) / allowed)
        layers.append(
            {
                "task": task,
                "layer": layer,
                "allowed": allowed,
                "jaccard": {m: mean_jaccard([_heads(x) for x in sets[m]]) for m in METHODS},
                "size": {m: float(torch.stack(sets[m]).sum(1).mean()) for m in METHODS},
                "fresh_loss": {m: sum(losses[m]) / RESAMPLES for m in METHODS},
            }
        )
    return {"layers": layers, "summary": summarise(layers), "tau": tau, "penalty": penalty}


def summarise(layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The mean of every figure over layers, and its paired difference from the posterior's.

    Intervals are over tasks.
    """
    tasks = [str(row["task"]) for row in layers]

    def over_layers(values: list[float]) -> list[float]:
        sums = torch.tensor(values, dtype=torch.float64)
        return ratio_interval(sums, torch.ones_like(sums), tasks)

    return {
        figure: {
            method: {
                "mean": over_layers([row[figure][method] for row in layers]),
                "less_posterior": over_layers(
                    [row[figure][method] - row[figure]["posterior"] for row in layers]
                ),
            }
            for method in METHODS
        }
        for figure in ("jaccard", "size", "fresh_loss")
    }


def _heads(gates: Tensor) -> set[int]:
    return set(gates.nonzero()[:, 0].tolist())


def _choose(
    method: str,
    given: CircuitPosterior,
    own: Mapping[str, Tensor],
    allowed: float,
    generator: torch.Generator,
) -> Tensor:
    """The smallest set of a ranking, or of all sets, that is faithful on the given prompts."""
    loss = -given.log_likelihoods.mean(0)
    heads = len(given.labels)
    if method == "smallest subset":
        faithful = (loss <= allowed).nonzero()[:, 0]
        sizes = given.subsets.sum(-1)[faithful]
        least = faithful[sizes == sizes.min()]
        return given.subsets[least[loss[least].argmin()]]
    rankings: Mapping[str, Callable[[], Tensor]] = {
        "posterior": lambda: given.log_odds,
        "attribution": lambda: own["attribution"].mean(0).abs(),
        "integrated": lambda: own["integrated"].mean(0).abs(),
        "gradient": lambda: own["gradient"].abs().mean(0),
        "gates": lambda: fit_gates(given),
        "single ablation": lambda: loss[2**heads - 1 - 2 ** torch.arange(heads)],
        "random": lambda: torch.rand(heads, generator=generator),
    }
    ranking = rankings[method]().argsort(descending=True, stable=True)
    gates = torch.zeros(heads, dtype=torch.float64)
    for head in ranking.tolist():
        if loss[int(subset_index(gates))] <= allowed:
            break
        gates[head] = 1
    return gates


def fit_gates(given: CircuitPosterior, steps: int = 60, learning_rate: float = 0.3) -> Tensor:
    """Logits of independent gates with the least expected divergence and penalty of heads."""
    loss = -given.log_likelihoods.mean(0) + given.penalty * given.subsets.sum(-1)
    loss = loss / loss.max()
    logits = torch.zeros(len(given.labels), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([logits], learning_rate)
    for _ in range(steps):
        log_q = given.subsets @ logits - torch.nn.functional.softplus(logits).sum()
        optimizer.zero_grad()
        (log_q.exp() * loss).sum().backward()
        optimizer.step()
    return logits.detach()
