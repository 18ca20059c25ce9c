"""Measures of an encoder's heads: learned noise, noise in one head, gates, removal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from latentheads.contrib import heads as analysis
from latentheads.contrib.hf import latent, plain
from latentheads.experiments.studies.retrieval.encoder import Encoder, hit_rate
from latentheads.experiments.studies.retrieval.paraphrases import Pairs
from latentheads.experiments.studies.retrieval.task import Task
from latentheads.guides import Tied
from latentheads.inference.bound import terms
from latentheads.inference.evaluation import eval_no_grad
from latentheads.inference.objective import Head_ELBO
from latentheads.latents.gates.hard_gates import GateController, Gating
from latentheads.latents.logits.priors import Independent
from latentheads.latents.selector import SelectionFamily
from latentheads.names import block_of
from latentheads.noise import fixed_noise
from latentheads.pruning import most_important, remove_heads

Heads = dict[str, Tensor]
"""A number for each head of every block."""


def learn_noise(task: Task, price: float, prior: float, steps: int) -> Heads:
    """Learns how much noise each head of a frozen network bears: the scale of every head.

    Args:
        task: What is asked.
        price: Weight of the KL; 1 is the bound.
        prior: The scale of the prior's noise.
        steps: Optimiser steps.
    """
    with task.latent_under(Independent(prior)) as model:
        return analysis.learn_noise(model, [*task.updates(model, steps)], price, seed=task.seed)


def under_noise(task: Task, scales: Mapping[str, Tensor], prior: float) -> dict[str, float]:
    """The bound and its terms under some noise, and how often the answer is found."""
    sums = dict.fromkeys(("log_likelihood", "kl", "hits"), 0.0)
    with task.latent_under(Independent(prior)) as model:
        guide = analysis.NoisyHeads(model)
        guide.set_scales(scales)
        with eval_no_grad(model, guide), fixed_noise(task.seed, task.answers.device):
            for batch in task.batches(model):
                bound = terms(model, guide, batch)
                sums["log_likelihood"] += float(bound.log_likelihood.sum())
                sums["kl"] += float(bound.total_kl.sum())
                distribution = guide.trace.nodes["target"]["fn"]
                sums["hits"] += float((distribution.logits.argmax(-1) == batch.target).sum())
    found = {name: value / len(task.pairs) for name, value in sums.items()}
    return found | {"bound": found["log_likelihood"] - found["kl"]}


def bear_alone(task: Task, scale: float) -> Heads:
    """What the log-probability of the answer loses where one head alone has noise."""
    with task.latent_under(Independent(scale)) as model:
        return analysis.noise_cost(model, task.batches(model), scale, task.seed)


def rank_by_gradient(task: Task) -> Heads:
    """The importance of every head by the gradient of the loss, comparable between blocks."""
    with task.latent_under("delta") as model:
        return analysis.gradient_importance(model, task.batches(model), normalise=False)


def learn_gates(task: Task, target: int, steps: int, rate: float) -> Heads:
    """Closes gates of a frozen network until a number of heads is open; gives their logits.

    Args:
        task: What is asked.
        target: Heads that stay open.
        steps: Optimiser steps.
        rate: By how much a step changes the L0 penalty for one head too many.
    """
    torch.manual_seed(task.seed)
    objective = Head_ELBO(analytic=True)
    with task.latent_under("delta", Gating(1, ("encoder-self",))) as model:
        guide = Tied(model)
        adam = torch.optim.Adam(guide.parameters(), lr=5e-3)
        controller = GateController(model, guide, target, steps, rate, len(task.pairs))
        model.train()
        model.network.eval()
        for step, batch in enumerate(task.updates(model, steps), 1):
            adam.zero_grad()
            objective.loss_and_grads(model, guide, batch)
            adam.step()
            controller.on_step_end(step)
        return {
            block_of(site): family.logits.detach().flatten().clone()
            for site, family in guide.find_posteriors(SelectionFamily).items()
        }


def removal_curve(
    folder: Any, pairs: Pairs, importance: Mapping[str, Tensor], numbers: Sequence[int]
) -> list[dict[str, float]]:
    """How often the smaller network finds the answer, both sides encoded by itself."""
    found = []
    for number in numbers:
        encoder = remove_least(folder, importance, number)
        hits, nats = hit_rate(*map(encoder.embed_all, (pairs.questions, pairs.answers)))
        left = sum(parameter.numel() for parameter in encoder.network.parameters())
        found.append({"heads": number, "hits": hits, "nats": nats, "parameters": left})
    return found


def time_networks(
    networks: Mapping[str, Any], words: Mapping[str, Tensor], rounds: int
) -> dict[str, float]:
    """The median seconds of a pass, networks in turn within every round."""
    times: dict[str, list[float]] = {name: [] for name in networks}
    with torch.no_grad():
        for _ in range(rounds + 1):
            for name, network in networks.items():
                begun = perf_counter()
                network(**words)
                times[name].append(perf_counter() - begun)
    return {name: median(each[1:]) for name, each in times.items()}  # the first warms up


def remove_least(folder: Any, importance: Mapping[str, Tensor], number: int) -> Encoder:
    """The encoder of a folder, with a number of its heads."""
    encoder = Encoder(folder)
    model = latent(encoder.network, "delta")
    remove_heads(model, most_important(importance, number))
    plain(model)
    return encoder


def same_noise(scales: Mapping[str, Tensor], prior: float) -> Heads:
    """One scale for all heads, at which they cost as many nats as at the given ones."""

    def price(scale: Tensor) -> float:
        ratio = scale.double() / prior
        return float((0.5 * (ratio.square() - 1) - ratio.log()).mean())

    wanted = price(torch.cat(list(scales.values())))
    low, high = 0.0, prior  # the price falls on the way from no noise to the prior's
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if price(torch.tensor(middle)) > wanted else (low, middle)
    return {name: torch.full_like(each, high) for name, each in scales.items()}
