"""Planted circuits: small networks that were trained with some heads off, so that truth is known.

A prompt is five letters and two questions; each names a place, and the answer is the later of both
letters in the alphabet. One head of each layer is on in training: the lower takes letters to
questions, the upper brings both together, and without either the task is not solved. All others are
off, and have their first, random weights when they are on again.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import latentheads as lh
from latentheads.contrib.circuits import (
    CircuitGuide,
    Prompts,
    SubsetScorer,
    calibrate,
    circuit_posterior,
    exact_bound,
    fit_guide,
    gibbs,
    smc,
)
from latentheads.contrib.circuits.guides import STRUCTURES
from latentheads.contrib.heads.interventions import Mean
from latentheads.experiments.studies.circuits.attribution import head_attributions
from latentheads.latents.bernoulli_heads.subsets import subset_index
from latentheads.packages import import_optional

LETTERS, LENGTH = 12, 5
LAYERS, HEADS = 2, 4
BATCH, PROMPTS = 64, 64


def make_network(seed: int) -> Any:
    """A decoder of two layers of four heads."""
    transformers = import_optional("transformers")
    torch.manual_seed(seed)
    config = transformers.GPT2Config(
        vocab_size=LETTERS + LENGTH,
        n_positions=LENGTH + 2,
        n_embd=32,
        n_layer=LAYERS,
        n_head=HEADS,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    return transformers.GPT2LMHeadModel(config)


def sample_prompts(number: int) -> tuple[Tensor, Tensor]:
    """Prompts and their answers."""
    letters = torch.randint(LETTERS, (number, LENGTH))
    places = torch.randint(LENGTH, (number, 2))
    return torch.cat([letters, LETTERS + places], 1), answer(letters, places)


def answer(letters: Tensor, places: Tensor) -> Tensor:
    """The later of the letters at two places."""
    return letters.gather(1, places).amax(1)


def train(network: Any, off: list[tuple[int, int]], steps: int) -> float:
    """Trains a network with some heads off; returns its accuracy with them off."""
    optimizer = torch.optim.AdamW(network.parameters(), 3e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, steps)
    with lh.heads(network).off(off):
        for _ in range(steps):
            tokens, answers = sample_prompts(BATCH)
            logits = network(input_ids=tokens).logits[:, -1]
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(logits, answers).backward()
            optimizer.step()
            schedule.step()
    return accuracy(network, off)


@torch.no_grad()
def accuracy(network: Any, off: list[tuple[int, int]]) -> float:
    """The share of 500 prompts that are answered with some heads off."""
    tokens, answers = sample_prompts(500)
    with lh.heads(network).off(off):
        predicted = network(input_ids=tokens).logits[:, -1].argmax(-1)
    return float((predicted == answers).double().mean())


def planted_circuit(seed: int, steps: int = 600, penalty: float = 0.01) -> dict[str, Any]:
    """Trains a network with six of eight heads off, and infers which were on.

    Args:
        seed: The seed.
        steps: Steps of training.
        penalty: The penalty of a head.
    """
    network = make_network(seed)
    every = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
    rng = random.Random(seed)
    kept = [(layer, rng.randrange(HEADS)) for layer in range(LAYERS)]
    off = [head for head in every if head not in kept]
    solved = train(network, off, steps)
    without = [accuracy(network, [*off, head]) for head in kept]
    network.requires_grad_(False).eval()
    tokens, answers = sample_prompts(PROMPTS)
    letters, places = tokens[:, :LENGTH], tokens[:, LENGTH:] - LETTERS
    moved = torch.cat([(letters + 5) % LETTERS, tokens[:, LENGTH:]], 1)  # other letters
    right = [[int(x)] for x in answers]
    wrong = [[int(x)] for x in answer(moved[:, :LENGTH], places)]
    own, other = (Prompts.of(rows.tolist(), right, wrong) for rows in (tokens, moved))
    scorer = SubsetScorer(network, own, every, Mean(network, own.inputs))
    posterior = circuit_posterior(scorer, penalty)
    half = torch.arange(PROMPTS // 2)
    tau = calibrate([posterior.on(half)], PROMPTS // 4, resamples=20)
    given = replace(posterior.on(half), tau=tau)
    truth = torch.tensor([head in kept for head in every])
    fresh = posterior.on(torch.arange(PROMPTS // 2, PROMPTS)).best
    loss = -posterior.log_likelihoods.mean(0)
    attributions = head_attributions(network, own[half], other[half])
    scores = {name: x.mean(0).abs().flatten().double() for name, x in attributions.items()}
    log_density = given.log_prior + given.log_likelihoods.sum(0) / tau

    def density(gates: Tensor) -> Tensor:
        return log_density[subset_index(gates)]

    gaps = {}
    for structure in STRUCTURES:
        guide = CircuitGuide([HEADS] * LAYERS, structure)
        guide.logits.data.copy_(given.log_odds.clamp(-15, 15))
        fit_guide(guide, log_density, steps=150, learning_rate=0.2)
        bound = exact_bound(guide, log_density)
        gaps[structure] = {"elbo": bound.elbo, "gap": bound.gap, "kl": bound.divergence}
    blocks = [list(range(HEADS)), list(range(HEADS, 2 * HEADS))]
    sampled = smc(density, blocks, particles=200)
    return {
        "seed": seed,
        "steps": steps,
        "penalty": penalty,
        "tau": tau,
        "accuracy": solved,
        "accuracy_without_each": without,
        "planted": truth.long().tolist(),
        "inclusion": given.inclusion.tolist(),
        "needed_on_fresh": fresh.long().tolist(),
        "single_ablation": [float(loss[-1 - 2**head]) for head in range(len(every))],
        "area_under_curve": {
            "posterior": _area(given.log_odds, truth),
            **{name: _area(x, truth) for name, x in scores.items()},
        },
        "log_evidence": float(log_density.logsumexp(0)),
        "gaps": gaps,
        "smc": {
            "largest_error": float((sampled.inclusion - given.inclusion).abs().max()),
            "log_evidence": sampled.log_evidence,
        },
        "gibbs": {
            "largest_error": float(
                (gibbs(density, blocks, 200).inclusion - given.inclusion).abs().max()
            )
        },
    }


def _area(scores: Tensor, truth: Tensor) -> float:
    """The probability that a planted head has the larger score of two."""
    first, second = scores[truth][:, None], scores[~truth]
    return float(((first > second).double() + 0.5 * (first == second)).mean())
