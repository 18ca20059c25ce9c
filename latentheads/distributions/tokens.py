"""The likelihood of a sentence's tokens, and the label-smoothed surrogate used in training.

Label smoothing is that of Szegedy et al. 2016, https://arxiv.org/abs/1512.00567.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import constraints

from latentheads.layers.numeric import full_precision
from latentheads.layers.output import ExpectedGradient, GivenLogits, Output


class Tokens(TorchDistribution):
    """The tokens of a sentence, each given its prefix: an exact likelihood.

    Args:
        states: The state that predicts each token; the logits themselves without an output layer.
        valid: True at real tokens; padding has log-probability 0.
        output: The output layer.

    Attributes:
        autocast: Whether the distribution was made under autocast, and the dtype; ``log_prob``
            uses the same setting.
    """

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012
    support = constraints.independent(constraints.nonnegative_integer, 1)
    smoothing = 0.0

    def __init__(
        self,
        states: Float[Tensor, "*batch token dim"],
        valid: Bool[Tensor, "*valid token"],
        output: Output | None = None,
    ) -> None:
        self.states = states
        self.valid = valid
        self.output = output or GivenLogits()
        device = states.device.type
        self.autocast = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
        super().__init__(states.shape[:-2], states.shape[-2:-1], validate_args=False)

    @property
    def logits(self) -> Float[Tensor, "*batch token vocab"]:
        """Scores of the vocabulary at every position, computed at each access."""
        return self.output(self.states)

    def token_log_prob(
        self, value: Int[Tensor, "*tokens token"], expected_gradient: ExpectedGradient = 1.0
    ) -> Float[Tensor, "*batch token"]:
        """Log-probability of every token, 0 at padding.

        Args:
            value: The tokens.
            expected_gradient: What the gradient is expected to be at real tokens; see
                ``Output.log_prob``.
        """
        shape = torch.broadcast_shapes(value.shape, self.states.shape[:-1])
        tokens, states = value.expand(shape), self.states.expand(*shape, -1)
        enabled, dtype = self.autocast
        with torch.autocast(states.device.type, dtype, enabled):
            if states.device.type != "cpu":  # indexing by a mask would synchronise
                return self.output.log_prob(states, tokens, self.smoothing) * self.valid
            valid = self.valid.expand(tokens.shape)
            if isinstance(expected_gradient, Tensor):
                expected_gradient = expected_gradient.expand(tokens.shape)[valid]
            inputs = states[valid], tokens[valid], self.smoothing, expected_gradient
            log_probs = self.output.log_prob(*inputs)
        return log_probs.new_zeros(tokens.shape).masked_scatter(valid, log_probs)

    def log_prob(self, value: Int[Tensor, "*tokens token"]) -> Float[Tensor, "*batch"]:
        """Sums the log-probability of the real tokens of each sentence."""
        return self.token_log_prob(value).sum(-1)

    def sample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        """Samples every token given the tokens that were fed in; padding becomes token 0."""
        with torch.no_grad():
            categorical = torch.distributions.Categorical(logits=full_precision(self.logits))
            return categorical.sample(sample_shape) * self.valid

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> Tokens:
        """Adds batch dimensions in front."""
        batch_shape = torch.Size(batch_shape)
        if batch_shape == self.batch_shape:
            return self
        states = self.states.expand(batch_shape + self.states.shape[-2:])
        return type(self)(states, self.valid, self.output)


class SmoothedTokens(Tokens):
    r"""Label smoothing, a surrogate of the likelihood in training; not a density.

    .. math:: (1 - \epsilon) \log p(y) + \tfrac{\epsilon}{V} \sum_v \log p(v)
    """

    def __init__(
        self,
        states: Float[Tensor, "*batch token dim"],
        valid: Bool[Tensor, "*valid token"],
        output: Output | None = None,
        smoothing: float = 0.1,
    ) -> None:
        super().__init__(states, valid, output)
        self.smoothing = smoothing

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> SmoothedTokens:
        batch_shape = torch.Size(batch_shape)
        if batch_shape == self.batch_shape:
            return self
        states = self.states.expand(batch_shape + self.states.shape[-2:])
        return type(self)(states, self.valid, self.output, self.smoothing)


def make_token_distribution(
    states: Float[Tensor, "*batch token dim"],
    valid: Bool[Tensor, "*valid token"],
    output: Output,
    smoothing: float = 0.0,
) -> Tokens:
    """Makes the distribution of tokens: label-smoothed if asked, exact otherwise."""
    if smoothing:
        return SmoothedTokens(states, valid, output, smoothing)
    return Tokens(states, valid, output)
