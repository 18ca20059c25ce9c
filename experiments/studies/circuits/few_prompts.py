"""How many prompts a calibrated temperature needs: heads whose effects are known, simulated."""

from __future__ import annotations

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
HEADS = 3
EFFECT = 0.3
"""Standard deviation of the mean effect of a head; that of prompts around it is 1."""

POSTERIORS = 150
"""Simulated posteriors for each number of prompts."""

CONFIDENT = 0.9


def few_prompts() -> list[dict[str, Any]]:
    """Of heads with P above .9 or below .1: how many have that sign of their mean effect."""
    generator = torch.Generator().manual_seed(0)
    rows = []
    for prompts in PROMPTS:
        calibrated, uncalibrated, needed, unidentified = [], [], [], 0
        for _ in range(POSTERIORS):
            effect = EFFECT * torch.randn(HEADS, generator=generator, dtype=torch.float64)
            noise = torch.randn(prompts, HEADS, generator=generator, dtype=torch.float64)
            posterior = _make_posterior(effect + noise)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                calibration = calibrate(posterior, resamples=100)
            unidentified += not calibration.is_identified
            calibrated.append(posterior.with_temperature(calibration.tau).inclusion)
            uncalibrated.append(posterior.inclusion)
            needed.append(effect > 0)
        is_needed = torch.cat(needed)
        row = {"prompts": prompts, "posteriors": POSTERIORS, "unidentified": unidentified}
        row |= _describe_confident(torch.cat(calibrated), is_needed)
        rows.append(row | {"at_tau_1": _describe_confident(torch.cat(uncalibrated), is_needed)})
    return rows


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
