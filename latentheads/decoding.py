"""Decoding: the likeliest continuation, token by token, heads at their prior's location."""

from __future__ import annotations

from typing import Any

import torch

from latentheads.batch import BOS, EOS, PAD, Batch
from latentheads.handlers import PlugIn

__all__ = ["greedy"]


@torch.no_grad()
def greedy(model: Any, batch: Batch, limit: int | None = None) -> list[list[int]]:
    """Decodes each sentence with the plug-in network, always taking the likeliest token.

    Args:
        model: A model with ``begin`` and ``step``, in evaluation mode.
        batch: The sources; targets are not looked at.
        limit: Most tokens; twice the source and ten more when not given.
    """
    if limit is None:
        limit = 10 + 2 * (batch.source if batch.source is not None else batch.target).shape[-1]
    with PlugIn():
        state = model.begin(batch)
        last = torch.full((len(batch), 1), BOS, device=batch.target.device)
        finished = torch.zeros_like(last, dtype=torch.bool)
        steps = []
        for _ in range(limit):
            logits = model.step(last, state)
            logits[..., PAD] = -torch.inf
            logits[..., BOS] = -torch.inf
            last = logits.argmax(-1).masked_fill(finished, PAD)
            steps.append(last)
            finished = finished | (last == EOS)
            if finished.all():
                break
    return [[token for token in row if token != PAD] for row in torch.cat(steps, 1).tolist()]
