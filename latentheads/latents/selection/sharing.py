"""The selected heads of each task, and the overlap between tasks."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from latentheads.guide import ModelGuide
from latentheads.latents.selector import SelectionFamily
from latentheads.names import block_of


@torch.no_grad()
def selection_probabilities(guide: ModelGuide) -> dict[str, Float[Tensor, "task candidate"]]:
    """The guide's probability of every candidate of a block to be active, by task."""
    families = guide.find_posteriors(SelectionFamily)
    return {block_of(site): family().open.cpu() for site, family in families.items()}


@torch.no_grad()
def chosen_heads(guide: ModelGuide) -> dict[str, Float[Tensor, "task candidate"]]:
    """The most probable selection of every block: one for active heads, else zero."""
    families = guide.find_posteriors(SelectionFamily)
    modes = {block_of(site): family().mode.cpu() for site, family in families.items()}
    return {block: (mode > 0).to(mode) for block, mode in modes.items()}


def overlap_coefficient(chosen: Float[Tensor, "task candidate"]) -> Float[Tensor, "task other"]:
    r"""The overlap coefficient of the heads of each two tasks.

    .. math:: |S_s \cap S_t| / \min(|S_s|, |S_t|)

    NaN if a task has no heads.
    """
    common = chosen @ chosen.T
    size = chosen.sum(-1)
    return common / torch.minimum(size[:, None], size[None, :])


def overlap_by_chance(chosen: Float[Tensor, "task candidate"]) -> Float[Tensor, "task other"]:
    r"""Its mean for random heads, as many as each task has: :math:`\max(|S_s|, |S_t|) / H'`."""
    size = chosen.sum(-1)
    return torch.maximum(size[:, None], size[None, :]) / chosen.shape[-1]
