"""Planted circuits: small networks that were trained with some heads off, so that truth is known.

A prompt is five letters and two questions; each names a place, and the answer is the later of both
letters in the alphabet. One head of each layer is on in training: the lower takes letters to
questions, the upper brings both together, and without either the task is not solved. All others are
off, and have their first, random weights when they are on again.
"""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor

import latentheads as lh
from latentheads.contrib.circuits import (
    CircuitPosterior,
    Prompts,
    SubsetScorer,
    calibrate,
    circuit_posterior,
    gibbs,
    smc,
)
from latentheads.contrib.circuits.guides import STRUCTURES
from latentheads.contrib.heads.interventions import Mean
from latentheads.experiments.studies.circuits.attribution import head_attributions
from latentheads.experiments.studies.circuits.gaps import guide_gaps, table_density
from latentheads.packages import import_optional

LETTERS, LENGTH = 12, 5
LAYERS, HEADS = 2, 4
BATCH, PROMPTS = 64, 64
Heads = list[tuple[int, int]]
ALL_HEADS: Heads = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]


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


def train(network: Any, off: Heads, steps: int) -> float:
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
def accuracy(network: Any, off: Heads) -> float:
    """The share of 500 prompts that are answered with some heads off."""
    tokens, answers = sample_prompts(500)
    with lh.heads(network).off(off):
        predicted = network(input_ids=tokens).logits[:, -1].argmax(-1)
    return float((predicted == answers).double().mean())


def plant_circuit(seed: int, steps: int) -> tuple[Any, Heads, dict[str, Any]]:
    """Trains a network with one head of each layer on; returns it, these heads and accuracies."""
    network = make_network(seed)
    rng = random.Random(seed)
    kept = [(layer, rng.randrange(HEADS)) for layer in range(LAYERS)]
    off = [head for head in ALL_HEADS if head not in kept]
    solved = train(network, off, steps)
    without = [accuracy(network, [*off, head]) for head in kept]
    network.requires_grad_(False).eval()
    return network, kept, {"accuracy": solved, "accuracy_without_each": without}


def make_prompts() -> tuple[Prompts, Prompts]:
    """Prompts, and the same questions about other letters; the next letter where both agree."""
    tokens, right = sample_prompts(PROMPTS)
    letters, places = tokens[:, :LENGTH], tokens[:, LENGTH:] - LETTERS
    moved = torch.cat([(letters + 5) % LETTERS, tokens[:, LENGTH:]], 1)
    others = answer(moved[:, :LENGTH], places)
    wrong = torch.where(others == right, (right + 1) % LETTERS, others)
    answers = right[:, None].tolist(), wrong[:, None].tolist()
    return Prompts.of(tokens.tolist(), *answers), Prompts.of(moved.tolist(), *answers)


def planted_circuit(seed: int, steps: int = 600, penalty: float = 0.01) -> dict[str, Any]:
    """Trains a network with six of eight heads off, and infers which were on.

    Args:
        seed: The seed.
        steps: Steps of training.
        penalty: The penalty of a head.
    """
    network, kept, accuracies = plant_circuit(seed, steps)
    truth = torch.tensor([head in kept for head in ALL_HEADS])
    own, other = make_prompts()
    scorer = SubsetScorer(network, own, ALL_HEADS, Mean(network, own.inputs))
    posterior = circuit_posterior(scorer, penalty, tau=1.0)
    half = torch.arange(PROMPTS // 2)
    tau = calibrate([posterior.on(half)], PROMPTS // 4, resamples=20).tau
    given = posterior.on(half).with_temperature(tau)
    fresh = posterior.on(torch.arange(PROMPTS // 2, PROMPTS)).best
    loss = -posterior.log_likelihoods.mean(0)
    attributions = head_attributions(network, own[half], other[half])
    scores = {name: x.mean(0).abs().flatten().double() for name, x in attributions.items()}
    return {
        "seed": seed,
        "steps": steps,
        "penalty": penalty,
        "tau": tau,
        **accuracies,
        "planted": truth.long().tolist(),
        "inclusion": given.inclusion.tolist(),
        "needed_on_fresh": fresh.long().tolist(),
        "single_ablation": [float(loss[-1 - 2**head]) for head in range(len(ALL_HEADS))],
        "area_under_curve": {
            name: _area(x, truth) for name, x in {"posterior": given.log_odds, **scores}.items()
        },
        "log_evidence": float(given.log_density.logsumexp(0)),
        "gaps": guide_gaps(given, [HEADS] * LAYERS, STRUCTURES),
        **_sample(given),
    }


def _sample(posterior: CircuitPosterior) -> dict[str, Any]:
    """Errors of samplers, and the estimated log-evidence."""
    density = table_density(posterior.log_density)
    blocks = [list(range(HEADS)), list(range(HEADS, 2 * HEADS))]
    samples = {"smc": smc(density, blocks, particles=200), "gibbs": gibbs(density, blocks, 200)}
    record: dict[str, Any] = {
        name: {"largest_error": float((x.inclusion - posterior.inclusion).abs().max())}
        for name, x in samples.items()
    }
    record["smc"]["log_evidence"] = samples["smc"].log_evidence
    return record


def _area(scores: Tensor, truth: Tensor) -> float:
    """The probability that a planted head has the larger score of two."""
    first, second = scores[truth][:, None], scores[~truth]
    return float(((first > second).double() + 0.5 * (first == second)).mean())
