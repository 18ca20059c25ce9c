"""Families: conditional distributions of a block's heads. Priors and posteriors are both families.

A family is what zuko calls a ``LazyDistribution``: a module that maps a context to a distribution.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor, nn

from latentheads.distributions.heads import HeadContext, HeadVariable, is_expandable
from latentheads.errors import shown


class Dependence(NamedTuple):
    """What the distribution of one head may depend on, besides its own scores.

    Attributes:
        across_heads: On other heads, in its block or below.
        on_lower_logits: On the logits of the block below.
    """

    across_heads: bool = True
    on_lower_logits: bool = True


class Family(nn.Module, ABC):
    """A conditional distribution of a block's heads, given a :class:`HeadContext`.

    Attributes:
        has_noise: Whether two samples differ.
    """

    has_noise: ClassVar[bool] = True

    @property
    def dependence(self) -> Dependence:
        """What one head may depend on: by default all heads and the logits below."""
        return Dependence()

    def prune(self, heads: Sequence[int]) -> None:
        """Removes the parameters of all other heads.

        It is called only where no head depends on another.
        """

    @abstractmethod
    def forward(self, context: HeadContext) -> HeadVariable:
        """Builds the distribution of the logits of all heads."""


def check_family(maker: str, family: Any) -> Family:
    """Checks that a value is a family."""
    if not isinstance(family, Family):
        raise ValueError(
            f"{maker} a Family, such as Gaussian(Identity(), HeadScale(block.heads, 0.5, "
            f"learned=True)), got {shown(family)}"
        )
    return family


def check_head_distribution(site: str, distribution: Any, shape: Sequence[int]) -> None:
    """Checks that a value is a distribution of a block's heads.

    Raises:
        ValueError: The value is not a distribution, or has another shape.
    """
    if not isinstance(distribution, TorchDistributionMixin):
        raise ValueError(
            f"site {site!r}: a family must return a distribution of heads, such as NormalHeads, "
            f"got {type(distribution).__name__}"
        )
    batch, event = torch.Size(shape[:-3]), torch.Size(shape[-3:])
    sentences = torch.Size(distribution.batch_shape)
    if distribution.event_shape != event or not is_expandable(sentences, batch):
        raise ValueError(
            f"site {site!r}: a family must return a distribution of heads, queries and keys of "
            f"shape {tuple(event)}, sentences {tuple(batch)}; got shape "
            f"{tuple(distribution.event_shape)}, sentences {tuple(sentences)}"
        )


def check_positive_scale(site: str, guide: str, posterior: Any) -> None:
    """Checks the values of a posterior's scale.

    Raises:
        ValueError: One is negative.
        FloatingPointError: One is 0 or NaN, as after a step that was too large.
    """
    scale = getattr(posterior, "scale", None)
    if isinstance(scale, Tensor) and not (scale > 0).all():
        kind = ValueError if (scale < 0).any() else FloatingPointError
        raise kind(
            f"site {site!r}: the scale of the posterior of {guide} must be positive, "
            f"got {float(scale.min()):g}"
        )
