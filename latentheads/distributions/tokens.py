"""The likelihood of a sentence: its tokens, and the smoothed stand-in used to train."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import constraints
from torch.nn import functional as F

__all__ = ["SmoothedTokens", "Tokens", "full_precision"]


def full_precision(x: Tensor) -> Tensor:
    """Widens a half-precision tensor to float32; densities are never computed in less."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


class Tokens(TorchDistribution):
    """The tokens of a sentence given everything before each: an exact likelihood.

    Args:
        logits: Scores of the vocabulary at every position.
        valid: True at real tokens; padding counts nothing.
    """

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012
    support = constraints.independent(constraints.nonnegative_integer, 1)
    smoothing = 0.0

    def __init__(
        self, logits: Float[Tensor, "*batch token vocab"], valid: Bool[Tensor, "*valid token"]
    ) -> None:
        self.logits = logits
        self.valid = valid
        super().__init__(logits.shape[:-2], logits.shape[-2:-1], validate_args=False)

    def token_log_prob(self, value: Int[Tensor, "*tokens token"]) -> Float[Tensor, "*batch token"]:
        """Log-probability of every token, 0 at padding."""
        shape = self.logits.shape[:-1]
        losses = F.cross_entropy(
            full_precision(self.logits).flatten(0, -2),
            value.expand(shape).flatten(),
            reduction="none",
            label_smoothing=self.smoothing,
        )
        return -losses.view(shape) * self.valid

    def log_prob(self, value: Int[Tensor, "*tokens token"]) -> Float[Tensor, "*batch"]:
        """Sums the log-probability of the real tokens of each sentence."""
        return self.token_log_prob(value).sum(-1)

    def sample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        """Draws every token given the tokens that were fed in; padding becomes token 0."""
        with torch.no_grad():
            categorical = torch.distributions.Categorical(logits=full_precision(self.logits))
            return categorical.sample(sample_shape) * self.valid

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> Tokens:
        """Puts batch dimensions in front."""
        batch_shape = torch.Size(batch_shape)
        if batch_shape == self.batch_shape:
            return self
        return type(self)(self.logits.expand(batch_shape + self.logits.shape[-2:]), self.valid)


class SmoothedTokens(Tokens):
    r"""Label smoothing as a stand-in for the likelihood while training; not a density.

    .. math:: (1 - \epsilon) \log p(y) + \tfrac{\epsilon}{V} \sum_v \log p(v)

    Args:
        logits: Scores of the vocabulary at every position.
        valid: True at real tokens.
        smoothing: :math:`\epsilon`.
    """

    def __init__(
        self,
        logits: Float[Tensor, "*batch token vocab"],
        valid: Bool[Tensor, "*valid token"],
        smoothing: float = 0.1,
    ) -> None:
        super().__init__(logits, valid)
        self.smoothing = smoothing

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> SmoothedTokens:
        """Puts batch dimensions in front."""
        batch_shape = torch.Size(batch_shape)
        if batch_shape == self.batch_shape:
            return self
        logits = self.logits.expand(batch_shape + self.logits.shape[-2:])
        return type(self)(logits, self.valid, self.smoothing)
