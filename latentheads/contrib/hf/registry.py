"""The attention function that is registered with ``transformers``, and its masks.

https://huggingface.co/docs/transformers/attention_interface
"""

from __future__ import annotations

from typing import Any

from jaxtyping import Float, Shaped
from torch import Tensor, nn

from latentheads.contrib.hf.addresses import NAME
from latentheads.contrib.hf.block import PretrainedBlock
from latentheads.packages import import_optional

OWNER = "latentheads_block"
"""The attribute of an attention module with its block, and of a network with its model."""

UNSUPPORTED = {
    "s_aux": "attention sinks",
    "head_mask": "a mask of heads",
    "cache": "a paged cache",
    "cu_seq_lens_q": "packed sequences",
}
"""Unsupported features that change the attention weights, by the argument that requests them."""

WITHOUT_EFFECT = (
    *("position_ids", "cache_position", "num_items_in_batch"),
    *("token_type_ids", "special_tokens_mask", "length"),  # what tokenizers make
)
"""Tensors that networks pass to every attention function, and that have no effect there."""


def register() -> None:
    """Registers the attention function and its masks; may be called repeatedly."""
    import_optional("transformers")
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, make_mask)


def owner_of(module: Any) -> Any:
    """The block of an attention module, or the model of a network; None: it is not latent."""
    (owner,) = getattr(module, OWNER, (None,))  # a tuple, so that it is no submodule
    return owner


def make_mask(*sizes: Any, **options: Any) -> Float[Tensor, "batch 1 query key"]:
    """Makes the explicit mask of pairs, also where a kernel would imply it.

    It is added to scores, as some networks have other attention modules that add it.
    """
    from transformers.masking_utils import eager_mask

    return eager_mask(*sizes, **options | {"allow_is_bidirectional_skip": False})


def attend(
    module: nn.Module,
    query: Float[Tensor, "batch head query size"],
    key: Float[Tensor, "batch group key size"],
    value: Float[Tensor, "batch group key wide"],
    attention_mask: Shaped[Tensor, "*pairs"] | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    position_bias: Tensor | None = None,
    softcap: float | None = None,
    **options: Any,
) -> tuple[Float[Tensor, "batch query head wide"], Float[Tensor, "batch head query key"]]:
    """Attends through the block of a module's heads.

    Args:
        module: The attention module of the network.
        query: Queries of every head.
        key: Keys; the heads of a group share them.
        value: Values, shared in the same way.
        attention_mask: Boolean, or added to the scores; None: all keys or, in a causal module, all
            keys that are not later.
        dropout: Dropout of the weights; 0 in evaluation.
        scaling: Factor of the products.
        position_bias: Added to the scores.
        softcap: Bound of the absolute scores, by tanh.
        **options: Arguments of other attention functions; an unknown tensor raises an error.

    Raises:
        ValueError: The module is not in a latent network, or the network uses an unsupported
            feature.
    """
    block = owner_of(module)
    if not isinstance(block, PretrainedBlock):
        raise ValueError(
            f"{type(module).__name__} has no latent heads: call latentheads.latent(model), for "
            "cross-attention of a decoder alone with config.add_cross_attention = True"
        )
    for name, what in UNSUPPORTED.items():
        if options.get(name) is not None:
            raise ValueError(f"block {block.block.name!r}: latent heads have no {what} ({name})")
    for name, option in options.items():
        if isinstance(option, Tensor) and name not in WITHOUT_EFFECT:
            raise ValueError(
                f"block {block.block.name!r}: latent heads do not support the argument {name}"
            )
    scores = block.score(query, key, scaling, position_bias, softcap)
    return block.attend(scores, value, attention_mask, dropout)
