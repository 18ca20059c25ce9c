"""Distributions of which heads of a block are active.

A sample is exactly zeros and ones. Its gradient is that of a relaxation (straight-through: Bengio,
Leonard and Courville 2013, https://arxiv.org/abs/1308.3432), which is biased, or none.
Log-probabilities, divergences and marginals are exact.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import constraints

from latentheads.checks import check_positive
from latentheads.layers.numeric import as_tensor_like


class Selection(TorchDistribution):
    """The weights of a block's candidates, each between zero and one; abstract.

    Args:
        logits: One logit per candidate.
        temperature: Temperature of the relaxation that gives the gradient.
    """

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012
    has_rsample = True

    def __init__(self, logits: Float[Tensor, "*batch candidate"], temperature: float = 1.0) -> None:
        check_positive("temperature", temperature)
        self.logits = logits
        self.temperature = temperature
        super().__init__(logits.shape[:-1], logits.shape[-1:], validate_args=False)

    @property
    @abstractmethod
    def mean(self) -> Float[Tensor, "*batch candidate"]:
        """The expected weight of every candidate; if binary, its selection probability."""

    @property
    def open(self) -> Float[Tensor, "*batch candidate"]:
        """The probability of every candidate to be active: to have a nonzero weight."""
        return self.mean

    @property
    @abstractmethod
    def mode(self) -> Float[Tensor, "*batch candidate"]:
        """The most probable selection; ties go to lower candidates."""

    @abstractmethod
    def log_prob(self, value: Float[Tensor, "*batch candidate"]) -> Float[Tensor, "*batch"]:
        """Log-probability of a selection."""

    @abstractmethod
    def _with_logits(self, logits: Float[Tensor, "*batch candidate"]) -> Selection:
        """The same distribution with other logits."""

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> Selection:
        """Adds batch dimensions in front."""
        batch_shape = torch.Size(batch_shape)
        if batch_shape == self.batch_shape:
            return self
        return self._with_logits(self.logits.expand(batch_shape + self.event_shape))


def sample_uniform(like: Tensor) -> Tensor:
    """Uniform noise inside (0, 1)."""
    tiny = torch.finfo(like.dtype).tiny
    return torch.rand(like.shape, dtype=like.dtype, device=like.device).clamp_min(tiny)


class EnumerableSelection(Selection):
    """A distribution over binary selections with a finite support; abstract.

    Args:
        logits: One logit per candidate.
        temperature: Temperature of the relaxation that gives the gradient; samples do not depend on
            it. None: samples have no gradient.
    """

    support = constraints.independent(constraints.boolean, 1)
    has_enumerate_support = True

    def __init__(
        self, logits: Float[Tensor, "*batch candidate"], temperature: float | None = 1.0
    ) -> None:
        super().__init__(logits, 1.0 if temperature is None else temperature)
        self.has_rsample = temperature is not None

    @property
    @abstractmethod
    def num_choices(self) -> int:
        """The size of the support."""

    @abstractmethod
    def _enumerate_choices(self) -> Iterable[tuple[int, ...]]:
        """Yields the selected candidates of every element of the support."""

    def enumerate_support(self, expand: bool = True) -> Float[Tensor, "choice *batch candidate"]:
        """Every selection once."""
        candidates = range(self.logits.shape[-1])
        rows = [
            [float(candidate in chosen) for candidate in candidates]
            for chosen in self._enumerate_choices()
        ]
        choices = as_tensor_like(rows, self.logits)
        choices = choices.reshape(-1, *(1 for _ in self.batch_shape), choices.shape[-1])
        return choices.expand(-1, *self.batch_shape, -1) if expand else choices

    @abstractmethod
    def _sample(self, logits: Float[Tensor, "*batch candidate"]) -> tuple[Tensor, Tensor]:
        """Samples a selection, and the relaxation that gives its gradient."""

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        """Samples selections with a straight-through gradient, or without one."""
        hard, soft = self._sample(self.logits.expand(self._extended_shape(sample_shape)))
        return hard + (soft - soft.detach()) if self.has_rsample else hard

    @property
    def _relaxation(self) -> float | None:
        return self.temperature if self.has_rsample else None
