r"""Importance of a head by the gradient of the loss, after Michel, Levy and Neubig (2019).

https://arxiv.org/abs/1905.10650

With a mask :math:`\xi_h = 1` on the output of head h,

.. math:: I_h = \mathbb E_x \left|\frac{\partial \mathcal L(x)}{\partial \xi_h}\right|
              = \mathbb E_x \Bigl|\sum_t o_{ht} \cdot
                \frac{\partial \mathcal L(x)}{\partial o_{ht}}\Bigr|,

where :math:`\mathcal L(x) = -\log p(y \mid z, x)` is summed over the tokens of a sentence and
:math:`o_{ht}` is the output of the head at query t. The mean is over the sentences in which the
head is active; NaN without such a sentence.

Without a guide :math:`\mathcal L(x) = -\log p(y \mid x)` if latents are summed out. With Bernoulli
heads b the mask acts in the passes of all subsets,

.. math:: \frac{\partial \mathcal L(x)}{\partial \xi_h} = -\sum_b p(b \mid x, y)
              \frac{\partial \log p(y \mid b, x)}{\partial \xi_h},

and every sentence counts, whether or not a subset has the head.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from latentheads.attention.block import HeadBlock
from latentheads.batch import Batch
from latentheads.contrib.heads.means import Means
from latentheads.contrib.heads.record import Recording
from latentheads.corpora.batches import iterate_batches
from latentheads.corpora.part import Part
from latentheads.guide import ModelGuide, check_pair
from latentheads.handlers import SharedSamples, blocked_from_tracers
from latentheads.inference.bound import traces
from latentheads.inference.evaluation import plug_in_log_likelihood
from latentheads.latents.latent import check_model
from latentheads.model import HeadModel
from latentheads.names import TARGET, Block
from latentheads.noise import fixed_noise
from latentheads.passes import evaluation_mode


def gradient_importance(
    model: HeadModel,
    batches: Part | Iterable[Batch],
    guide: ModelGuide | None = None,
    seed: int = 0,
    *,
    normalise: bool = True,
) -> dict[str, Float[Tensor, " head"]]:
    r"""Computes :math:`I_h` for the heads of every block, by block.

    Args:
        model: The model.
        batches: A part of a corpus, or batches, each sentence once.
        guide: Sample the heads from this guide; latents shared by all sentences are sampled once.
            Without a guide heads are set to their plug-in value.
        seed: Seed of the guide's noise; the index of the batch is added to it.
        normalise: Divide by the l2 norm over the heads of a block, as the paper does.
    """
    check_model(model)
    if guide is not None:
        check_pair(model, guide)
    means, shared_samples = Means(), SharedSamples()
    for index, batch in enumerate(iterate_batches(batches, "batches")):
        device_batch = batch.to(model.device)
        gradients = _gradients(model, guide, device_batch, seed + index, shared_samples)
        for block, active, gradient in gradients:
            if len(batch) > 1 and (gradient.ndim == 2 or len(gradient) % len(batch)):
                raise ValueError(
                    f"block {block.name!r} has the images of all sentences in one row: give "
                    "batches of one sentence"
                )
            rows = len(batch), -1, gradient.shape[-1]  # an image may have a row for each window
            sums = gradient.reshape(rows).sum(1)
            means.add(block.name, sums.abs(), active.reshape(rows).any(1))
    importance = means.result()
    if normalise:
        for value in importance.values():
            value /= value.nan_to_num().norm().clamp_min(torch.finfo(value.dtype).tiny)
    return importance


class _HeadMasks:
    """Multiplies the outputs of all heads by masks of ones, whose gradient is wanted.

    Args:
        model: The model.
        visible: Whether to skip passes that are hidden from the hooks of blocks, such as the pass
            without noise of a guide.
    """

    def __init__(self, model: HeadModel, visible: bool) -> None:
        self._modules = [module for module in model.head_blocks if module.num_active_heads]
        self._visible = visible
        self.masks: dict[str, Float[Tensor, "batch query head"]] = {}

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Context of the passes, and of the backward pass, which may compute some again."""
        with ExitStack() as removals:
            for module in self._modules:
                hook = partial(self._apply, module)
                removals.callback(module.projection.register_forward_pre_hook(hook).remove)
            yield

    def _apply(self, module: HeadBlock, _: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        (joined,) = inputs
        if self._visible and not module.hooks:
            return inputs
        outputs, name = joined.unflatten(-1, (module.num_active_heads, -1)), module.block.name
        if name not in self.masks:  # subsets of heads may be in front of the sentences
            self.masks[name] = outputs.new_ones(outputs.shape[-4:-1]).requires_grad_()
        return ((outputs * self.masks[name][..., None]).flatten(-2),)

    def gradients(self, loss: Tensor) -> dict[str, Float[Tensor, "batch query head"]]:
        """The gradient of the loss by the masks, by block; 0 where nothing depends on the heads.

        So it is for an encoder all of whose cross-attention heads were removed.
        """
        masks = [*self.masks.values()]
        values = torch.autograd.grad(loss, masks, allow_unused=True, materialize_grads=True)
        return dict(zip(self.masks, values, strict=True))


def _gradients(
    model: HeadModel,
    guide: ModelGuide | None,
    batch: Batch,
    seed: int,
    shared_samples: SharedSamples,
) -> list[tuple[Block, Bool[Tensor, "batch head"], Float[Tensor, "batch query head"]]]:
    """Returns the blocks, their active heads, and the gradient of the loss by their masks."""
    recording, masks = Recording(model), _HeadMasks(model, visible=guide is not None)
    modules = [module for module in (model, guide) if isinstance(module, nn.Module)]
    with ExitStack() as contexts:
        contexts.enter_context(evaluation_mode(*modules))
        contexts.enter_context(fixed_noise(seed, batch.target.device))
        contexts.enter_context(blocked_from_tracers())
        contexts.enter_context(torch.enable_grad())
        contexts.enter_context(recording)
        contexts.enter_context(masks.applied())
        if guide is None:
            log_likelihood = plug_in_log_likelihood(model, batch)
        else:
            with shared_samples:
                target = traces(model, guide, batch)[0].nodes[TARGET]
            log_likelihood = target["fn"].log_prob(target["value"])
        gradients = masks.gradients(-log_likelihood.sum())
    recorded = [recording[block.name] for block in recording.blocks]
    active = {heads.block.name: heads.active for heads in recorded}
    if guide is None:  # the recorded pass has one subset of the heads that are summed over
        summed = [latent for latent in model.latents.values() if latent.is_summed_out]
        names = {name for latent in summed for name in latent.fixed_blocks}
        active |= {name: torch.ones_like(active[name]) for name in names}
    return [
        (heads.block, active[heads.block.name], gradients[heads.block.name]) for heads in recorded
    ]
