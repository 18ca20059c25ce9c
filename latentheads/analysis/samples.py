"""Attention weights under several samples: mean, standard deviation and an 80 % band."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from latentheads.analysis.record import Recording, record_heads
from latentheads.batch import Batch
from latentheads.checks import check_least
from latentheads.guide import ModelGuide, WithSelection
from latentheads.handlers import blocked_from_tracers
from latentheads.inference.evaluation import eval_no_grad
from latentheads.model import HeadModel
from latentheads.noise import fixed_noise

BAND = (0.1, 0.9)
"""The quantiles at the ends of the band."""

NO_NOISE = 1e-6
"""A standard deviation of weights below this is rounding error."""


@dataclass(frozen=True)
class SampledWeights:
    """Statistics of the attention weights of a block over several samples of its heads.

    Attributes:
        mean: The mean.
        deviation: The standard deviation; 0 for heads without noise.
        low: The 10 % quantile.
        high: The 90 % quantile.
    """

    mean: Float[Tensor, "*batch head query key"]
    deviation: Float[Tensor, "*batch head query key"]
    low: Float[Tensor, "*batch head query key"]
    high: Float[Tensor, "*batch head query key"]


def sample_weights(
    model: HeadModel, guide: ModelGuide, batch: Batch, draws: int = 64, seed: int = 0
) -> dict[str, SampledWeights]:
    """Samples the attention weights of every attention block from a guide.

    All samples are held in memory, so use only a few sentences. Selections of heads are set to
    their mode.

    Args:
        model: The model.
        guide: The guide from which heads are sampled.
        batch: The sentences.
        draws: Number of samples; at least 2.
        seed: Seed of the noise.
    """
    check_least({"draws": draws}, draws=2)
    weights_of_blocks: dict[str, list[Tensor]] = {}
    with WithSelection(guide):
        for _, heads in record_heads(model, [batch] * draws, guide, seed):
            for block in heads.attention_blocks:
                weights_of_blocks.setdefault(block.name, []).append(heads[block.name].weights)
    return {
        name: summarise_samples(torch.stack(weights)) for name, weights in weights_of_blocks.items()
    }


def record_prior_heads(
    model: HeadModel, guide: ModelGuide, batch: Batch, draws: int, seed: int = 0
) -> Iterator[Recording]:
    """Records the heads under samples from the prior, which is not conditioned on the target.

    The noise equals that of :func:`record_heads` with the same seed: if the guide equals the prior,
    both sample the same heads.
    """
    device = model.device
    device_batch = batch.to(device)
    for draw in range(draws):
        heads = Recording(model)
        contexts = eval_no_grad(model, guide), fixed_noise(seed + draw, device)
        with contexts[0], contexts[1], WithSelection(guide), blocked_from_tracers(), heads:
            model.states(device_batch)
        yield heads


def summarise_samples(weights: Float[Tensor, "draw *batch head query key"]) -> SampledWeights:
    """Computes mean, standard deviation and quantiles over samples.

    Double precision makes the deviation of heads without noise exactly 0.
    """
    deviation, mean = torch.std_mean(weights.double(), 0)
    quantiles = np.quantile(
        weights.cpu().numpy(), BAND, axis=0
    )  # torch.quantile limits the input size
    low, high = torch.from_numpy(quantiles).to(mean)
    return SampledWeights(mean, deviation, low, high)
