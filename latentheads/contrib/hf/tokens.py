"""Whether a network can read the tokens that it is given."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

POSITIONS_FROM_TOKENS = "create_position_ids_from_input_ids"
"""A function of embeddings, or of their file, that compute positions from tokens, not padding."""


def check_tokens(inputs: Mapping[str, Tensor], network: nn.Module) -> None:
    """Checks that there are tokens, in the vocabulary, and no more than positions."""
    config: Any = network.config
    words = getattr(config, "vocab_size", None)
    tables = {m.num_embeddings for m in network.modules() if isinstance(m, nn.Embedding)} - {words}
    names = ("max_position_embeddings", "max_target_positions")  # the second one is Whisper's
    positions: int = max(getattr(config, name, None) or 0 for name in names)
    # OPT's table begins at 2; positions that are rotated or relative have none
    limited = positions > 0 and (positions in tables or positions + 2 in tables)
    skips_padding = limited and "position_ids" not in inputs and computes_positions(network)
    if skips_padding:  # positions begin after the id of padding
        positions -= config.pad_token_id + 1
    for name in ("input_ids", "decoder_input_ids"):
        tokens = inputs.get(name)
        if tokens is None:
            continue
        if not tokens.numel():
            raise ValueError(f"{name} has no tokens, got shape {tuple(tokens.shape)}")
        number = tokens.shape[-1]
        if skips_padding:
            number = int((tokens != config.pad_token_id).sum(-1).max())
        if limited and number > positions:
            raise ValueError(
                f"{name} has {number} tokens, and the network has positions for {positions}: "
                "truncate the text"
            )
        size = words
        if name.startswith("decoder_"):
            size = getattr(config, "decoder_vocab_size", None) or size
        low, high = map(int, tokens.aminmax())
        if size is not None and (low < 0 or high >= size):
            raise ValueError(
                f"{name} has the id {low if low < 0 else high}, and the network's vocabulary has "
                f"the ids 0 to {size - 1:,}"
            )


def computes_positions(network: nn.Module) -> bool:
    """Whether a network computes positions from its tokens, skipping padding, as RoBERTa does."""
    return any(
        hasattr(owner, POSITIONS_FROM_TOKENS)
        for module in network.modules()
        for owner in (module, sys.modules.get(type(module).__module__))
    )
