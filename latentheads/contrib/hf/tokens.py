"""Whether a network can read the tokens that it is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn


def check_tokens(inputs: Mapping[str, Tensor], network: nn.Module) -> None:
    """Checks that there are tokens, in the vocabulary, and no more than positions."""
    config: Any = network.config
    words = getattr(config, "vocab_size", None)
    tables = {m.num_embeddings for m in network.modules() if isinstance(m, nn.Embedding)} - {words}
    positions: int = getattr(config, "max_position_embeddings", None) or 0
    # OPT's table begins at 2; positions that are rotated or relative have none
    limited = positions > 0 and (positions in tables or positions + 2 in tables)
    for name in ("input_ids", "decoder_input_ids"):
        tokens = inputs.get(name)
        if tokens is None:
            continue
        if limited and tokens.shape[-1] > positions:
            raise ValueError(
                f"{name} has {tokens.shape[-1]} tokens, and the network has positions for "
                f"{positions}: truncate the text"
            )
        if not tokens.numel():
            raise ValueError(f"{name} has no tokens, got shape {tuple(tokens.shape)}")
        size = words
        if name.startswith("decoder_"):
            size = getattr(config, "decoder_vocab_size", None) or size
        low, high = map(int, tokens.aminmax())
        if size is not None and (low < 0 or high >= size):
            raise ValueError(
                f"{name} has the id {low if low < 0 else high}, and the network's vocabulary has "
                f"the ids 0 to {size - 1:,}"
            )
