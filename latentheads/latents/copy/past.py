"""Earlier states of a text beyond the blocks that a network reads, to copy from in evaluation."""

from __future__ import annotations

import torch
from torch import Tensor

from latentheads.batch import Batch
from latentheads.latents.network import EncoderDecoderStates


class TextPast:
    """The last states of a text, each with the token that followed it, from batch to batch.

    A network reads blocks; a copy head that remembers the states of earlier ones may point at
    thousands of positions, as a cache does (Grave et al. 2017,
    https://openreview.net/forum?id=B184E5qee). Batches must come in the order of the text, each
    token scored once. A batch may be passed several times in a row.

    Args:
        window: How many tokens back a token may point.
    """

    def __init__(self, window: int) -> None:
        self.window = window
        self._kept: tuple[Tensor, Tensor] | None = None
        self._latest: tuple[Tensor, Tensor] | None = None
        self._target: Tensor | None = None

    def remember(self, hidden: EncoderDecoderStates, batch: Batch) -> EncoderDecoderStates:
        """Replaces the memory by the states of all earlier tokens in the window."""
        if batch.target is not self._target:  # the first pass of the next batch
            self._kept, self._target = self._latest, batch.target
        valid = batch.scored_mask
        new_states, new_tokens = hidden.states[valid].detach(), batch.scored[valid]
        states, tokens = self._kept or (new_states[:0], new_tokens[:0])
        first = len(states)
        states, tokens = torch.cat([states, new_states]), torch.cat([tokens, new_tokens])
        self._latest = states[-self.window :], tokens[-self.window :]
        queries = first + (valid.flatten().cumsum(0) - 1).clamp_min(0).view(valid.shape)[..., None]
        keys = torch.arange(len(states), device=states.device)
        attn_mask = (keys < queries) & (keys >= queries - self.window)
        return EncoderDecoderStates(hidden.states, states[None], attn_mask, tokens=tokens[None])
