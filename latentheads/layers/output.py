"""The interface of output layers: the distribution of one token given a state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import deepcopy
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from latentheads.layers.numeric import full_precision

ExpectedGradient = Tensor | float | None
"""A tensor with a value for each token; 1.0: the same for all; None: unknown."""


class Output(nn.Module, ABC):
    """The distribution of one token given a state."""

    @abstractmethod
    def forward(self, states: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch vocab"]:
        """Scores the vocabulary."""

    @abstractmethod
    def log_prob(
        self,
        states: Float[Tensor, "*batch dim"],
        tokens: Int[Tensor, "*batch"],
        smoothing: float = 0.0,
        expected_gradient: ExpectedGradient = 1.0,
    ) -> Float[Tensor, "*batch"]:
        r"""Log-probability of each token, in float32 or wider.

        With smoothing :math:`\epsilon` it is the surrogate
        :math:`(1 - \epsilon) \log p(y) + \tfrac{\epsilon}{V} \sum_v \log p(v)`, not a density.

        Args:
            states: The states.
            tokens: The tokens.
            smoothing: :math:`\epsilon`.
            expected_gradient: What the gradient of each log-probability is expected to be, up to a
                common factor. It makes the backward pass fast, and changes no value.
        """

    def log_mixture(
        self,
        states: Float[Tensor, "*batch dim"],
        tokens: Int[Tensor, "*batch"],
        log_constant: Float[Tensor, "*batch"],
        smoothing: float = 0.0,
    ) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
        """The log of p(y) + c for each token y, and log p(y).

        Args:
            states: The states.
            tokens: The tokens.
            log_constant: log c for each token.
            smoothing: As in :meth:`log_prob`.
        """
        log_probs = self.log_prob(states, tokens, smoothing)
        return torch.logaddexp(log_probs, log_constant), log_probs

    def with_current_weights(self) -> Output:
        """Makes a copy of the layer that is bound to the present weight tensors, without cloning.

        ``log_prob`` is called after the pass, when ``torch.func.functional_call`` has restored the
        original weights.
        """
        weights = [*self.parameters(), *self.buffers()]
        # torch.nn.utils.prune puts a computed tensor in the place of a parameter
        attributes = (value for module in self.modules() for value in vars(module).values())
        weights += [value for value in attributes if isinstance(value, Tensor)]
        return deepcopy(self, {id(weight): weight for weight in weights})


class GivenLogits(Output):
    """The states are the logits themselves."""

    def forward(self, states: Float[Tensor, "*batch vocab"]) -> Float[Tensor, "*batch vocab"]:
        return states

    def log_prob(
        self,
        states: Float[Tensor, "*batch vocab"],
        tokens: Int[Tensor, "*batch"],
        smoothing: float = 0.0,
        expected_gradient: ExpectedGradient = 1.0,
    ) -> Float[Tensor, "*batch"]:
        flat = full_precision(states).flatten(0, -2)
        losses = F.cross_entropy(
            flat, tokens.flatten(), reduction="none", label_smoothing=smoothing
        )
        return -losses.view(tokens.shape)


class RowOutput(Output):
    """An output layer with a row for every token, whose product with a state is the token's score.

    So adding to a state adds to the scores. The distribution is a softmax or a product of several.
    """

    @property
    @abstractmethod
    def width(self) -> int:
        """The width of a state."""

    @abstractmethod
    def rows_of(self, tokens: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch dim"]:
        """The row of each token."""

    def with_current_weights(self) -> RowOutput:
        return cast(RowOutput, super().with_current_weights())
