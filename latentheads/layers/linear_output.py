"""Output layers whose scores are products with a matrix."""

from __future__ import annotations

from abc import abstractmethod

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from latentheads.layers.linear_log_prob import linear_log_mixture, linear_log_prob
from latentheads.layers.output import ExpectedGradient, RowOutput


class LinearOutput(RowOutput):
    """Softmax over the products with a matrix."""

    @property
    @abstractmethod
    def weight(self) -> Float[Tensor, "vocab dim"]:
        """The matrix: one row per token of the vocabulary."""

    @property
    def width(self) -> int:
        return self.weight.shape[-1]

    def rows_of(self, tokens: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch dim"]:
        return self.weight[tokens]

    def with_current_weights(self) -> LinearOutput:
        return MatrixOutput(self.weight)

    def forward(self, states: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch vocab"]:
        return F.linear(states, self.weight)

    def log_prob(
        self,
        states: Float[Tensor, "*batch dim"],
        tokens: Int[Tensor, "*batch"],
        smoothing: float = 0.0,
        expected_gradient: ExpectedGradient = 1.0,
    ) -> Float[Tensor, "*batch"]:
        flat = states.flatten(0, -2), self.weight, tokens.flatten()
        return linear_log_prob(*flat, smoothing, expected_gradient).view(tokens.shape)

    def log_mixture(
        self,
        states: Float[Tensor, "*batch dim"],
        tokens: Int[Tensor, "*batch"],
        log_constant: Float[Tensor, "*batch"],
        smoothing: float = 0.0,
    ) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
        flat = states.flatten(0, -2), self.weight, tokens.flatten(), log_constant.flatten()
        log_mixture, log_probs = linear_log_mixture(*flat, smoothing)
        return log_mixture.view(tokens.shape), log_probs.view(tokens.shape)


class TableOutput(LinearOutput):
    """The matrix is an embedding table, which may be tied to the input."""

    def __init__(self, table: nn.Embedding) -> None:
        super().__init__()
        self.table = table

    @property
    def weight(self) -> Float[Tensor, "vocab dim"]:
        return self.table.weight


class MatrixOutput(LinearOutput):
    """The matrix is a tensor that belongs to another module."""

    def __init__(self, matrix: Float[Tensor, "vocab dim"]) -> None:
        super().__init__()
        self._matrix = (matrix,)  # a tuple, so that it is not registered as a parameter

    @property
    def weight(self) -> Float[Tensor, "vocab dim"]:
        return self._matrix[0]
