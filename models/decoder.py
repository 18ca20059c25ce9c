"""What every model has that predicts tokens one after another."""

from __future__ import annotations

from abc import abstractmethod

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from latentheads.batch import Batch
from latentheads.mask import Reach
from latentheads.model import HeadModel
from latentheads.models.layers import DecodingState

__all__ = ["Decoder"]


class Decoder(HeadModel):
    """A model with a causal stack over the target."""

    @abstractmethod
    def begin(self, batch: Batch) -> DecodingState:
        """Prepares to decode a batch token by token, before its first target token."""

    @abstractmethod
    def step(
        self, tokens: Int[Tensor, "batch *hypothesis new"], state: DecodingState
    ) -> Float[Tensor, "batch *hypothesis new vocab"]:
        """Feeds further target tokens and scores the vocabulary after each.

        Args:
            tokens: The next tokens of every sentence, or of each of its hypotheses.
            state: What :meth:`begin` prepared.
        """

    def reach(self, drawn: Bool[Tensor, "*batch query"], start: int = 0) -> Reach:
        """Causal validity of the queries from a position on; padding follows every real token.

        Args:
            drawn: The queries whose heads are drawn.
            start: Position of the first.
        """
        return Reach(drawn, None, start, self.density_dtype)

    def step_reach(self, tokens: Int[Tensor, "batch *hypothesis new"], start: int) -> Reach:
        """The reach of new tokens from a position on, one for all sentences and hypotheses."""
        one = tokens.new_ones((1,) * (tokens.ndim - 1) + tokens.shape[-1:], dtype=torch.bool)
        return self.reach(one, start)

    @property
    def density_dtype(self) -> torch.dtype:
        """float32, or float64 for a model in float64."""
        return torch.promote_types(self.dtype, torch.float32)
