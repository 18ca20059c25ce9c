"""Recorded heads as an ``xarray.DataTree``, for ``xarray`` and ``arviz``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from latentheads.batch import Batch
from latentheads.contrib.heads.record import Heads, Recording
from latentheads.contrib.heads.tokens import attention_tokens
from latentheads.names import ATTENTION_TYPES, Block

if TYPE_CHECKING:
    from xarray import DataTree

DIMS = ("sentence", "layer", "head", "query", "key")


def to_datatree(heads: Recording, batch: Batch | None = None) -> DataTree:
    """Makes a tree with one group per attention type, each with ``weights`` and ``logits``.

    Their dimensions are sentence, layer, head, query and key; the dimension of particles, if the
    pass had one, comes first and is called ``draw``. Inactive heads are NaN, and so are heads that
    only other layers have.

    Args:
        heads: A recording in which every block ran once; blocks that did not run are left out.
        batch: The batch that the model ran on: padding and masked keys are then NaN. Without it
            logits and weights are as in the network.

    Raises:
        ValueError: A block ran more than once, as in decoding.
    """
    from arviz_base import from_dict
    from xarray import DataTree

    tree = DataTree()
    for attention_type in ATTENTION_TYPES:
        blocks = [
            block for block in heads.attention_blocks if block.attention_type == attention_type
        ]
        passes = [(block, heads.passes(block.name)) for block in blocks]
        layers = [_check_single_pass(block, recorded) for block, recorded in passes if recorded]
        if layers:
            stacked = _stack(layers, attention_type, batch)
            arrays = {name: array.numpy() for name, array in stacked.items()}
            dims = DIMS if arrays["weights"].ndim == len(DIMS) else ("draw", *DIMS)
            subtree = from_dict(
                {attention_type: arrays},
                sample_dims=[],
                dims=dict.fromkeys(arrays, dims),
                coords={"layer": [layer.block.layer for layer in layers]},
            )
            tree.update({attention_type: subtree[attention_type]})
    return tree


def _check_single_pass(block: Block, passes: list[Heads]) -> Heads:
    if len(passes) != 1:
        raise ValueError(
            f"heads must hold one pass, got {len(passes)} of {block.name}: "
            "read those of decoding one by one, as passes"
        )
    return passes[0]


def _stack(layers: list[Heads], attention_type: str, batch: Batch | None) -> dict[str, Tensor]:
    """Stacks weights and logits of the blocks of one attention type; layers before heads."""
    active_logits = [
        layer.logits.masked_fill(~layer.active[..., None, None], torch.nan) for layer in layers
    ]
    arrays = {
        "weights": _stack_layers([layer.weights for layer in layers]),
        "logits": _stack_layers(active_logits),
    }
    if batch is not None:
        tokens = attention_tokens(batch, attention_type)
        valid = tokens.valid_queries[:, :, None] & tokens.valid_keys[:, None]
        masked = ~torch.stack([valid & layer.readable for layer in layers], -3).unsqueeze(-3)
        arrays = {name: array.masked_fill(masked, torch.nan) for name, array in arrays.items()}
    return {name: array.detach().cpu() for name, array in arrays.items()}


def _stack_layers(
    layers: list[Float[Tensor, "*batch _ query key"]],
) -> Float[Tensor, "*batch layer head query key"]:
    """Stacks layers, padded with NaN to the largest number of heads."""
    max_heads = max(layer.shape[-3] for layer in layers)
    missing = [max_heads - layer.shape[-3] for layer in layers]
    padded = [F.pad(x, (*[0] * 5, n), value=torch.nan) for x, n in zip(layers, missing)]
    return torch.stack(padded, -4)
