"""Scales: the standard deviation of a block's heads, or the Cholesky factor of their covariance."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from latentheads.checks import check_positive


class HeadScale(nn.Module):
    """The standard deviation of a block's logits: a constant, or one learned parameter per head.

    Attributes:
        noise_factor: A factor that training may anneal from 0 to 1; it is 1 in evaluation.

    Args:
        heads: Number of heads H.
        value: The constant, or the initial value.
        learned: Whether to learn it.
    """

    def __init__(self, heads: int, value: float = 1.0, learned: bool = False) -> None:
        super().__init__()
        check_positive("scale", value)
        self.value = value
        self.noise_factor = 1.0
        self.log = nn.Parameter(torch.full((heads, 1, 1), value).log()) if learned else None

    def forward(self) -> float | Tensor:
        """Returns a number, or a tensor ``head 1 1``."""
        scale = self.value if self.log is None else self.log.exp()
        return scale if self.noise_factor == 1.0 else self.noise_factor * scale

    @torch.no_grad()
    def prune(self, heads: Sequence[int]) -> None:
        """Removes the parameters of all other heads."""
        if self.log is not None:
            self.log = nn.Parameter(self.log[list(heads)])


class CholeskyFactor(nn.Module):
    """A lower triangular matrix over heads with a positive diagonal.

    Args:
        heads: Number of heads H.
        scale: The initial value of the diagonal.
        learned_scale: Whether to learn the diagonal too.
    """

    def __init__(self, heads: int, scale: float = 1.0, learned_scale: bool = True) -> None:
        super().__init__()
        self.below_diagonal = nn.Parameter(torch.zeros(heads, heads))
        self.scale = HeadScale(heads, scale, learned_scale)

    def forward(self) -> Float[Tensor, "head head"]:
        """Assembles the matrix."""
        strict = self.scale.noise_factor * self.below_diagonal.tril(-1)
        scale = self.scale()
        # new_full fills on the device: copying a number there would synchronise with it
        diagonal = scale if isinstance(scale, Tensor) else strict.new_full((1,), scale)
        return strict + diagonal.to(strict.dtype).reshape(-1).expand(strict.shape[0]).diag()
