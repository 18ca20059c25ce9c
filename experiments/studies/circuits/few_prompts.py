"""How many prompts a calibrated temperature needs: heads whose effects are known, simulated."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from latentheads.contrib.circuits import CircuitPosterior, calibrate
from latentheads.experiments.studies.circuits.intervals import wilson_interval
from latentheads.latents.bernoulli_heads.subsets import all_subsets
from latentheads.names import Block

Simulated = tuple[Float[Tensor, " head"], Float[Tensor, "prompt head"]]
"""The mean effect of each head, and its effects on prompts."""

PROMPTS = (4, 8, 16, 32, 200)
SHARED = (
    (32, 32, 0.0),
    (32, 8, 0.3),
    (32, 8, 1.0),
    (200, 200, 0.0),
    (200, 20, 0.3),
    (200, 20, 1.0),
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
    rows = []
    for prompts in PROMPTS:
        simulated = [_simulate(prompts, generator) for _ in range(POSTERIORS)]
        posteriors = [_make_posterior(effects) for _, effects in simulated]
        calibrated, unidentified = _calibrate(posteriors)
        row: dict[str, Any] = {"prompts": prompts, "posteriors": POSTERIORS}
        row |= {"unidentified": unidentified, **_describe_confident(calibrated, simulated)}
        rows.append({**row, "at_tau_1": _describe_confident(posteriors, simulated)})
    return rows


def no_effect() -> list[dict[str, Any]]:
    """How many heads have P above .9 or below .1 though their mean effect is 0."""
    generator = torch.Generator().manual_seed(0)
    rows = []
    for prompts in PROMPTS:
        simulated = [_simulate(prompts, generator, effect=0.0) for _ in range(POSTERIORS)]
        posteriors = [_make_posterior(effects) for _, effects in simulated]
        row: dict[str, Any] = {"prompts": prompts, "heads": POSTERIORS * HEADS}
        for name, own in (("calibrated", _calibrate(posteriors)[0]), ("at_tau_1", posteriors)):
            number = int(_is_confident(own).sum())
            interval = wilson_interval(number, POSTERIORS * HEADS)
            row[name] = {"confident_heads": number, "interval": interval}
        rows.append(row)
    return rows


def shared_texts() -> list[dict[str, Any]]:
    """Probabilities and intervals of prompts that share texts, and of the means over each text.

    Each text has equally many prompts. A share of the variance of effects is that of texts: with 1
    the prompts of a text are copies of each other.
    """
    generator = torch.Generator().manual_seed(0)
    rows = []
    for prompts, texts, shared in SHARED:
        simulated = [_simulate(prompts, generator, texts, shared) for _ in range(POSTERIORS)]
        row: dict[str, Any] = {"prompts": prompts, "texts": texts, "shared": shared}
        posteriors = [_make_posterior(effects) for _, effects in simulated]
        of_texts = [p.grouped([*range(texts)] * (prompts // texts)) for p in posteriors]
        for name, own in (("each_prompt", posteriors), ("means", of_texts)):
            calibrated, _ = _calibrate(own)
            row[name] = {
                **_describe_confident(calibrated, simulated),
                **_describe_covered(calibrated, simulated),
            }
        rows.append(row)
    return rows


def _simulate(
    prompts: int,
    generator: torch.Generator,
    texts: int = 1,
    shared: float = 0.0,
    effect: float = EFFECT,
) -> Simulated:
    """The mean effects of heads, and their effects on prompts."""
    mean = effect * torch.randn(HEADS, generator=generator, dtype=torch.float64)
    noise = torch.randn(prompts, HEADS, generator=generator, dtype=torch.float64)
    if shared:
        of_text = torch.randn(texts, HEADS, generator=generator, dtype=torch.float64)
        of_text = of_text.repeat(prompts // texts, 1)
        noise = math.sqrt(1 - shared) * noise + math.sqrt(shared) * of_text
    return mean, mean + noise


def _calibrate(posteriors: Sequence[CircuitPosterior]) -> tuple[list[CircuitPosterior], int]:
    """Each posterior at its own temperature, and how many do not identify it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        calibrations = [calibrate(posterior, resamples=100) for posterior in posteriors]
    pairs = zip(posteriors, calibrations, strict=True)
    unidentified = sum(not calibration.is_identified for calibration in calibrations)
    return [posterior.with_temperature(c.tau) for posterior, c in pairs], unidentified


def _is_confident(posteriors: Sequence[CircuitPosterior]) -> Bool[Tensor, " head"]:
    """Of the heads of all posteriors those with P above .9 or below .1."""
    probability = torch.cat([posterior.inclusion for posterior in posteriors])
    return torch.maximum(probability, 1 - probability) > CONFIDENT


def _describe_confident(
    posteriors: Sequence[CircuitPosterior], simulated: Sequence[Simulated]
) -> dict[str, Any]:
    """How many confident heads are right."""
    probability = torch.cat([posterior.inclusion for posterior in posteriors])
    is_needed, confident = torch.cat([mean > 0 for mean, _ in simulated]), _is_confident(posteriors)
    certainty = torch.where(is_needed, probability, 1 - probability)
    number, right = int(confident.sum()), int((certainty[confident] > 0.5).sum())
    return {
        "confident_heads": number,
        "probability": float(torch.maximum(probability, 1 - probability)[confident].mean()),
        "share": right / number,
        "interval": wilson_interval(right, number),
    }


def _describe_covered(
    posteriors: Sequence[CircuitPosterior], simulated: Sequence[Simulated]
) -> dict[str, Any]:
    """How many 95 % intervals hold P at the mean effects, given the same temperature."""
    held = 0
    for posterior, (mean, _) in zip(posteriors, simulated, strict=True):
        ends, log_odds = posterior.bootstrap(), mean * len(posterior.tokens) / posterior.tau
        held += int(((ends.low.logit() <= log_odds) & (log_odds <= ends.high.logit())).sum())
    number = len(posteriors) * HEADS
    return {"covered": held / number, "covered_interval": wilson_interval(held, number)}


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
