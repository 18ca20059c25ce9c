"""Attention weights under several samples: mean, standard deviation and an 80 % band."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from latentheads.batch import Batch, check_batch
from latentheads.checks import check_least
from latentheads.contrib.heads.record import Recording, record_heads
from latentheads.frames import in_one_line
from latentheads.guide import ModelGuide, check_pair
from latentheads.handlers import blocked_from_tracers
from latentheads.inference.evaluation import eval_no_grad
from latentheads.latents.handlers import WithSelection
from latentheads.model import HeadModel
from latentheads.noise import fixed_noise

BAND = (0.1, 0.9)
"""The quantiles at the ends of the band."""

NO_NOISE = 1e-6
"""A standard deviation of weights below this is rounding error."""


@dataclass(frozen=True)
class SampledWeights:
    """Statistics of the attention weights of a block over several samples of its heads.

    They are over the samples in which a head is active, and NaN if it is active in none.

    Attributes:
        mean: The mean.
        deviation: The standard deviation; 0 for heads without noise.
        low: The 10 % quantile.
        high: The 90 % quantile.
        active: The share of samples in which a head is active: 0 or 1, except of Bernoulli heads.
    """

    mean: Float[Tensor, "*batch head query key"]
    deviation: Float[Tensor, "*batch head query key"]
    low: Float[Tensor, "*batch head query key"]
    high: Float[Tensor, "*batch head query key"]
    active: Float[Tensor, "*batch head"]

    __repr__ = in_one_line


def sample_weights(
    model: HeadModel, guide: ModelGuide, batch: Batch, num_samples: int = 64, seed: int = 0
) -> dict[str, SampledWeights]:
    """Samples the attention weights of every attention block from a guide.

    All samples are held in memory, so use only a few sentences. Selections of heads are set to
    their mode.

    Args:
        model: The model.
        guide: The guide from which heads are sampled.
        batch: The sentences.
        num_samples: Number of samples; at least 2.
        seed: Seed of the noise.
    """
    check_least({"num_samples": num_samples}, num_samples=2)
    check_batch(batch)
    weights_of_blocks: dict[str, list[Tensor]] = {}
    with WithSelection(guide):
        for _, heads in record_heads(model, [batch] * num_samples, guide, seed):
            for block in heads.attention_blocks:
                weights_of_blocks.setdefault(block.name, []).append(heads[block.name].weights)
    return {
        name: summarise_samples(torch.stack(weights)) for name, weights in weights_of_blocks.items()
    }


def record_prior_heads(
    model: HeadModel, guide: ModelGuide, batch: Batch, num_samples: int, seed: int = 0
) -> Iterator[Recording]:
    """Records the heads under samples from the prior, which is not conditioned on the target.

    The noise equals that of :func:`record_heads` with the same seed: if the guide equals the prior,
    both sample the same heads.
    """
    check_pair(model, guide)
    check_batch(batch)
    device = model.device
    device_batch = batch.to(device)
    for draw in range(num_samples):
        heads = Recording(model)
        contexts = eval_no_grad(model, guide), fixed_noise(seed + draw, device)
        with contexts[0], contexts[1], WithSelection(guide), blocked_from_tracers(), heads:
            model.token_distribution(device_batch)  # not states, for which all gates are open
        yield heads


def summarise_samples(weights: Float[Tensor, "draw *batch head query key"]) -> SampledWeights:
    """Computes mean, standard deviation and quantiles over the samples with each head.

    Double precision makes the deviation of heads without noise exactly 0.

    Args:
        weights: The samples; NaN for a head that is inactive in a sample.
    """
    active = ~weights.isnan().flatten(-2).all(-1)
    number, values = active.sum(0)[..., None, None], weights.double()
    mean = values.nanmean(0)
    variance = (values - mean).square().nansum(0) / (number - 1).clamp_min(1)
    deviation = variance.sqrt().masked_fill(number == 0, torch.nan)
    low, high = _active_quantiles(weights.cpu(), active.cpu()).to(mean)
    return SampledWeights(mean, deviation, low, high, active.double().mean(0))


def _active_quantiles(
    weights: Float[Tensor, "draw *batch head query key"], active: Bool[Tensor, "draw *batch head"]
) -> Float[Tensor, "end *batch head query key"]:
    """The quantiles at the ends of the band over the samples with each head."""
    quantiles = torch.full((len(BAND), *weights.shape[1:]), torch.nan, dtype=torch.float64)
    for index in active.any(0).nonzero().tolist():
        head = (slice(None), *index)
        rows = weights[head][active[head]].numpy()
        ends = np.quantile(rows, BAND, axis=0)  # torch.quantile limits the input size
        quantiles[head] = torch.from_numpy(ends)
    return quantiles
