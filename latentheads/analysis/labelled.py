"""Heads as labelled arrays, for ``xarray`` and ``arviz``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from latentheads.analysis.record import Heads, Recording
from latentheads.analysis.sides import sides
from latentheads.batch import Batch
from latentheads.names import ATTENTION_TYPES, Block

if TYPE_CHECKING:
    from xarray import DataTree

__all__ = ["labelled"]

DIMS = ("sentence", "layer", "head", "query", "key")


def labelled(heads: Recording, batch: Batch | None = None) -> DataTree:
    """Makes a tree with a group a chain, each with ``weights`` and ``logits``.

    Their dimensions are sentence, layer, head, query and key; a dimension of particles, where the
    pass had one, stands in front and is called draw. A layer is the depth in its chain. A silent
    head is NaN, and so is one that a layer lacks and another has.

    Args:
        heads: A recording in which every block ran once; a block that did not run is left out.
        batch: The batch that the model ran on: padding and unreadable keys are then NaN. Without
            it logits and weights are as the network had them.

    Raises:
        ValueError: A block ran more than once, as in decoding.
    """
    from arviz_base import from_dict
    from xarray import DataTree

    tree = DataTree()
    for chain in ATTENTION_TYPES:
        found = [(block, heads.passes(block.name)) for block in heads.attending]
        once = [_only(block, each) for block, each in found if block.chain == chain and each]
        if once:
            arrays = {name: each.numpy() for name, each in _stacked(once, chain, batch).items()}
            dims = DIMS if arrays["weights"].ndim == len(DIMS) else ("draw", *DIMS)
            part = from_dict(
                {chain: arrays},
                sample_dims=[],
                dims=dict.fromkeys(arrays, dims),
                coords={"layer": [each.block.layer for each in once]},
            )
            tree.update({chain: part[chain]})
    return tree


def _only(block: Block, passes: list[Heads]) -> Heads:
    if len(passes) != 1:
        raise ValueError(
            f"heads must hold one pass, got {len(passes)} of {block.name}: "
            "read those of decoding one by one, as passes"
        )
    return passes[0]


def _stacked(layers: list[Heads], chain: str, batch: Batch | None) -> dict[str, Tensor]:
    """Weights and logits of the blocks of a chain, with the layer in front of the heads."""
    arrays = {
        "weights": _stack_layers([each.weights for each in layers]),
        "logits": _stack_layers([_heard(each) for each in layers]),
    }
    if batch is not None:
        known = sides(batch, chain)
        real = known.real_queries[:, :, None] & known.real_keys[:, None]
        unread = ~torch.stack([real & each.readable for each in layers], -3).unsqueeze(-3)
        arrays = {name: each.masked_fill(unread, torch.nan) for name, each in arrays.items()}
    return {name: each.detach().cpu() for name, each in arrays.items()}


def _stack_layers(
    layers: list[Float[Tensor, "*batch _ query key"]],
) -> Float[Tensor, "*batch layer head query key"]:
    """As many heads in every layer as in the one that has most."""
    most = max(each.shape[-3] for each in layers)
    padded = [F.pad(each, (*[0] * 5, most - each.shape[-3]), value=torch.nan) for each in layers]
    return torch.stack(padded, -4)


def _heard(heads: Heads) -> Tensor:
    """The logits of heads that speak."""
    return heads.logits.masked_fill(~heads.speaks[..., None, None], torch.nan)
