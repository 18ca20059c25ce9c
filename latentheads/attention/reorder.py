"""Selects rows of cached tensors: of sentences, and of the hypotheses of each."""

from __future__ import annotations

import torch
from jaxtyping import Int, Shaped
from torch import Tensor


def reorder(
    cached: Shaped[Tensor, "sentence ..."],
    sentences: Int[Tensor, " kept"] | None,
    hypotheses: Int[Tensor, "kept hypothesis"] | None,
) -> Shaped[Tensor, "kept ..."]:
    """Selects, repeats or reorders the sentences and hypotheses of a cached tensor; None: all."""
    if hypotheses is None:
        return cached if sentences is None else cached.index_select(0, sentences)
    if sentences is None:
        sentences = torch.arange(len(hypotheses), device=hypotheses.device)
    rows = sentences[:, None] * cached.shape[1] + hypotheses
    return cached.flatten(0, 1).index_select(0, rows.flatten()).unflatten(0, rows.shape)
