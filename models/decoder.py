"""What every model has that predicts tokens one after another."""

from __future__ import annotations

from abc import abstractmethod

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from latentheads.batch import Batch
from latentheads.mask import Mask, causal
from models.base import HeadModel
from models.layers import DecodingState

__all__ = ["Decoder"]


class Decoder(HeadModel):
    """A model with a causal stack over the target and a table of output embeddings."""

    output: nn.Embedding

    @abstractmethod
    def begin(self, batch: Batch) -> DecodingState:
        """Prepares to decode a batch token by token, before its first target token."""

    @abstractmethod
    def step(
        self, tokens: Int[Tensor, "batch new"], state: DecodingState
    ) -> Float[Tensor, "batch new vocab"]:
        """Feeds further target tokens and scores the vocabulary after each."""

    def predict(
        self, states: Float[Tensor, "*batch target dim"]
    ) -> Float[Tensor, "*batch target vocab"]:
        """Scores the vocabulary with the output embeddings."""
        return F.linear(states, self.output.weight)

    def self_mask(self, valid: Bool[Tensor, "*batch query"], start: int = 0) -> Mask:
        """Causal validity of the queries from a position on; padding follows every real token."""
        new = valid.shape[-1]
        readable = causal(start + new, valid.device)[start:]
        return Mask.build(readable.expand(*valid.shape, start + new), valid, self.density_dtype)

    @property
    def density_dtype(self) -> torch.dtype:
        """float32, or float64 for a model in float64."""
        return torch.promote_types(self.output.weight.dtype, torch.float32)
