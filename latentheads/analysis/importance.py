r"""Importance of a head by the gradient of the loss, after Michel, Levy and Neubig (2019).

https://arxiv.org/abs/1905.10650

With a mask :math:`\xi_h = 1` on the output of head h,

.. math:: I_h = \mathbb E_x \left|\frac{\partial \mathcal L(x)}{\partial \xi_h}\right|
              = \mathbb E_x \Bigl|\sum_t o_{ht} \cdot
                \frac{\partial \mathcal L(x)}{\partial o_{ht}}\Bigr|,

where :math:`\mathcal L(x) = -\log p(y \mid z, x)` is summed over the tokens of a sentence and
:math:`o_{ht}` is the output of the head at query t. The second form needs no mask. The mean is over
the sentences in which the head is active; NaN without such a sentence.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack

import torch
from jaxtyping import Float
from torch import Tensor, nn

from latentheads.analysis.means import Means
from latentheads.analysis.record import Heads, Recording
from latentheads.batch import Batch
from latentheads.checks import check_choice
from latentheads.corpora import Part
from latentheads.corpora.batches import iterate_batches
from latentheads.guide import ModelGuide
from latentheads.handlers import SharedSamples, blocked_from_tracers, evaluation_mode
from latentheads.inference.bound import traces
from latentheads.inference.evaluation import plug_in_log_likelihood
from latentheads.model import HeadModel
from latentheads.names import TARGET, side_of
from latentheads.noise import fixed_noise

UNITS = ("sentence", "token")


def mask_gradient(
    joined: Float[Tensor, "*batch query width"],
    gradient: Float[Tensor, "*batch query width"],
    heads: int,
) -> Float[Tensor, "*batch query head"]:
    """``o . dL/do`` of every head at every query, from the concatenated outputs of all heads."""
    return (joined * gradient).unflatten(-1, (heads, -1)).sum(-1)


def gradient_importance(
    model: HeadModel,
    parts: Part | Iterable[Batch],
    guide: ModelGuide | None = None,
    seed: int = 0,
    unit: str = "sentence",
    normalise: bool = True,
) -> dict[str, Float[Tensor, " head"]]:
    r"""Computes :math:`I_h` for the heads of every block, by block.

    Args:
        model: The model.
        parts: A part of a corpus, or batches, each sentence once.
        guide: Sample the heads from this guide; latents shared by all sentences are sampled once.
            Without a guide heads are set to their plug-in value.
        seed: Seed of the guide's noise; the index of the batch is added to it.
        unit: Average the absolute value over sentences, as in the paper, or over the queries of the
            block (``token``), as in its released code.
        normalise: Divide by the l2 norm over the heads of a block, as the paper does.
    """
    check_choice("unit", unit, UNITS)
    means, shared_samples = Means(), SharedSamples()
    for index, batch in enumerate(iterate_batches(parts, "parts")):
        device_batch = batch.to(model.device)
        for heads, gradient in _gradients(model, guide, device_batch, seed + index, shared_samples):
            values, counts = gradient.sum(1).abs(), None
            if unit == "token":
                encoder = side_of(heads.block.attention_type) == "encoder"
                valid = device_batch.source_valid if encoder else device_batch.target_valid
                values, counts = gradient.abs().sum(1), valid.sum(-1)
            means.add(heads.block.name, values, heads.active, counts)
    importance = means.result()
    return (
        {name: _unit_length(head_importance) for name, head_importance in importance.items()}
        if normalise
        else importance
    )


def _unit_length(value: Tensor) -> Tensor:
    return value / value.nan_to_num().norm().clamp_min(torch.finfo(value.dtype).tiny)


def _gradients(
    model: HeadModel,
    guide: ModelGuide | None,
    batch: Batch,
    seed: int,
    shared_samples: SharedSamples,
) -> list[tuple[Heads, Float[Tensor, "batch query _"]]]:
    """Returns the heads of every block and the gradient of each sentence's loss by their masks."""
    recording = Recording(model, keep_gradients=True)
    modules = [module for module in (model, guide) if isinstance(module, nn.Module)]
    with ExitStack() as contexts:
        contexts.enter_context(evaluation_mode(*modules))
        contexts.enter_context(fixed_noise(seed, batch.target.device))
        contexts.enter_context(blocked_from_tracers())
        contexts.enter_context(torch.enable_grad())
        contexts.enter_context(recording)
        loss = -_log_likelihood(model, guide, batch, shared_samples).sum()
    recorded = [recording[block.name] for block in recording.blocks]
    joined = [block_heads.joined for block_heads in recorded]
    gradients = torch.autograd.grad(loss, joined, materialize_grads=True)
    return [
        (block_heads, mask_gradient(block_heads.joined.detach(), gradient, block_heads.block.heads))
        for block_heads, gradient in zip(recorded, gradients, strict=True)
    ]


def _log_likelihood(
    model: HeadModel, guide: ModelGuide | None, batch: Batch, shared_samples: SharedSamples
) -> Tensor:
    """Log p(y | z, x) of every sentence."""
    if guide is None:
        return plug_in_log_likelihood(model, batch)
    with shared_samples:
        target = traces(model, guide, batch)[0].nodes[TARGET]
    return target["fn"].log_prob(target["value"])
