"""How many prompts a calibrated temperature needs: heads whose effects are known, simulated."""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from latentheads.contrib.circuits import CircuitPosterior, calibrate
from latentheads.experiments.studies.circuits.intervals import wilson_interval
from latentheads.latents.bernoulli_heads.subsets import all_subsets
from latentheads.names import Block

PROMPTS = (4, 8, 16, 32, 200)
SHARED = (
    *((32, 32, 0.0), (32, 8, 0.3), (32, 8, 1.0)),
    *((200, 200, 0.0), (200, 20, 0.3), (200, 20, 1.0)),
)
"""Prompts, texts, and the share of the variance of effects that is that of texts."""

HEADS = 3
EFFECT = 0.3
"""Standard deviation of the mean effect of a head; that of prompts around it is 1."""

POSTERIORS = 150
"""Simulated posteriors for each number of prompts."""

CONFIDENT = 0.9


def few_prompts() -> list[dict[str, Any]]:
    """Of heads with P above .9 or below .1: how many have that sign of their mean effect."""
    generator = torch.Generator().manual_seed(0)
    return [_simulate(prompts, generator) for prompts in PROMPTS]


def shared_texts() -> list[dict[str, Any]]:
    """The same of prompts that share texts, and how often an interval holds P at the mean effects.

    Each text has equally many prompts. A share of the variance of effects is that of texts: with 1
    the prompts of a text are copies of each other.
    """
    generator = torch.Generator().manual_seed(0)
    return [
        {"texts": texts, "shared": shared, **_simulate(prompts, generator, texts, shared)}
        for prompts, texts, shared in SHARED
    ]


def _simulate(
    prompts: int, generator: torch.Generator, texts: int = 0, shared: float = 0.0
) -> dict[str, Any]:
    calibrated, uncalibrated, needed, covered, unidentified = [], [], [], [], 0
    for _ in range(POSTERIORS):
        effect = EFFECT * torch.randn(HEADS, generator=generator, dtype=torch.float64)
        noise = torch.randn(prompts, HEADS, generator=generator, dtype=torch.float64)
        if texts:
            of_text = torch.randn(texts, HEADS, generator=generator, dtype=torch.float64)
            of_text = of_text.repeat(prompts // texts, 1)
            noise = math.sqrt(1 - shared) * noise + math.sqrt(shared) * of_text
        posterior = _make_posterior(effect + noise)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            calibration = calibrate(posterior, resamples=100)
        unidentified += not calibration.is_identified
        tempered = posterior.with_temperature(calibration.tau)
        calibrated.append(tempered.inclusion)
        uncalibrated.append(posterior.inclusion)
        needed.append(effect > 0)
        if texts:
            ends, log_odds = tempered.bootstrap(), effect * prompts / tempered.tau
            covered.append((ends.low.logit() <= log_odds) & (log_odds <= ends.high.logit()))
    is_needed = torch.cat(needed)
    row: dict[str, Any] = {"prompts": prompts, "posteriors": POSTERIORS}
    row |= {"unidentified": unidentified, **_describe_confident(torch.cat(calibrated), is_needed)}
    row["at_tau_1"] = _describe_confident(torch.cat(uncalibrated), is_needed)
    if covered:
        number, held = len(is_needed), int(torch.cat(covered).sum())
        row |= {"covered": held / number, "covered_interval": wilson_interval(held, number)}
    return row


def _describe_confident(
    probability: Float[Tensor, " head"], is_needed: Bool[Tensor, " head"]
) -> dict[str, Any]:
    """The heads with P above .9 or below .1."""
    certainty = torch.where(is_needed, probability, 1 - probability)
    confident = torch.maximum(probability, 1 - probability) > CONFIDENT
    number, right = int(confident.sum()), int((certainty[confident] > 0.5).sum())
    return {
        "confident_heads": number,
        "probability": float(torch.maximum(probability, 1 - probability)[confident].mean()),
        "share": right / number,
        "interval": wilson_interval(right, number),
    }


def _make_posterior(effects: Float[Tensor, "prompt head"]) -> CircuitPosterior:
    """The posterior of heads with these effects on prompts, each by itself."""
    subsets = all_subsets(HEADS, effects)
    chosen = [("decoder.0.self", head) for head in range(HEADS)]
    return CircuitPosterior(
        [Block("decoder-self", 0, HEADS)],
        -effects @ (1 - subsets).mT,
        effects.new_ones(len(effects)),
        chosen=chosen,
        labels=[f"L0H{head}" for _, head in chosen],
    )
