"""How sure a guide is of its heads: mean, standard deviation and band of their weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from latentheads.analysis.record import Recording, readings
from latentheads.batch import Batch
from latentheads.checks import check_least
from latentheads.guide import ModelGuide, WithSelection
from latentheads.handlers import blocked_from_tracers
from latentheads.inference.evaluation import evaluating
from latentheads.model import HeadModel
from latentheads.noise import fixed_noise

__all__ = [
    "BAND",
    "NO_NOISE",
    "DrawnWeights",
    "drawn_weights",
    "prior_readings",
    "summarise_draws",
]

BAND = (0.1, 0.9)
"""The ends of the band that holds most draws, as shares of them."""

NO_NOISE = 1e-6
"""A standard deviation of weights below it is rounding."""


@dataclass(frozen=True)
class DrawnWeights:
    """The attention weights of a block under several draws of its heads.

    Attributes:
        mean: Over the draws.
        deviation: Their standard deviation; 0 where heads carry no noise.
        low: A tenth of the draws lies below.
        high: A tenth of the draws lies above.
    """

    mean: Float[Tensor, "*batch head query key"]
    deviation: Float[Tensor, "*batch head query key"]
    low: Float[Tensor, "*batch head query key"]
    high: Float[Tensor, "*batch head query key"]


def drawn_weights(
    model: HeadModel, guide: ModelGuide, batch: Batch, draws: int = 64, seed: int = 0
) -> dict[str, DrawnWeights]:
    """Reads the heads of every block that attends, under draws from a guide.

    All draws are held in memory: this is for a few sentences. Selections of heads stand at their
    likeliest.

    Args:
        model: The model.
        guide: Draws the heads.
        batch: The sentences.
        draws: Number of draws; at least 2.
        seed: Of the noise.

    Returns:
        By the name of the block.
    """
    check_least({"draws": draws}, draws=2)
    every: dict[str, list[Tensor]] = {}
    with WithSelection(guide):
        for _, heads in readings(model, [batch] * draws, guide, seed):
            for block in heads.attending:
                every.setdefault(block.name, []).append(heads[block.name].weights)
    return {name: summarise_draws(torch.stack(found)) for name, found in every.items()}


def prior_readings(
    model: HeadModel, guide: ModelGuide, batch: Batch, draws: int, seed: int = 0
) -> Iterator[Recording]:
    """Reads the heads of every block under draws from the prior, which knows nothing of the target.

    The noise is that of :func:`readings` with the same seed: where the guide is the prior, both
    draw the same heads.

    Args:
        model: The model.
        guide: Selects the heads, where they are selected.
        batch: The sentences.
        draws: Number of draws.
        seed: Of the noise.
    """
    device = model.device
    here = batch.to(device)
    for place in range(draws):
        heads = Recording(model)
        around = evaluating(model, guide), fixed_noise(seed + place, device)
        with around[0], around[1], WithSelection(guide), blocked_from_tracers(), heads:
            model.states(here)
        yield heads


def summarise_draws(weights: Float[Tensor, "draw *batch head query key"]) -> DrawnWeights:
    """The usual estimators; in double precision heads without noise deviate by 0."""
    deviation, mean = torch.std_mean(weights.double(), 0)
    ends = np.quantile(weights.cpu().numpy(), BAND, axis=0)  # torch's has a limit of size
    low, high = torch.from_numpy(ends).to(mean)
    return DrawnWeights(mean, deviation, low, high)
