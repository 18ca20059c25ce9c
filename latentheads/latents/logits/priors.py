"""Priors p(z_l | z_{l-1}, x) of a block's heads; ``PRIORS`` is the table of their names.

"The paper" is Zheng, Wu and Kong 2021, https://aclanthology.org/2021.acl-long.45; without noise,
``delta`` is the Transformer (https://arxiv.org/abs/1706.03762) and ``residual`` RealFormer
(https://arxiv.org/abs/2012.11747).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from latentheads.arguments import Configured
from latentheads.checks import MAX_WIDTH, check_choice, check_number, check_positive, check_within
from latentheads.families.family import Family
from latentheads.families.location import Cascade, Identity, ReleasedCascade, RunningSum
from latentheads.families.normal import Correlated, Gaussian, Point
from latentheads.families.scale import CholeskyFactor, HeadScale
from latentheads.names import Block


class Prior(Configured, ABC):
    """Makes the prior family of each block of a model."""

    deterministic = False

    @abstractmethod
    def __call__(self, block: Block) -> Family:
        """Makes the family of a block."""

    def outputs(self, block: Block, scale: float) -> Family:
        """Makes the family of the outputs of n-gram heads: noise around what they compute."""
        return Gaussian(Identity(), HeadScale(block.heads, scale))

    def __repr__(self) -> str:
        arguments = (f"{name}={value!r}" for name, value in self.config.items())
        return f"{type(self).__name__}({', '.join(arguments)})"


class Delta(Prior):
    """Scores without noise: the plain Transformer."""

    deterministic = True

    def __call__(self, block: Block) -> Family:
        """Makes a point mass at the scores."""
        return Point(Identity())


class Residual(Prior):
    """Scores plus logits below, without noise: RealFormer."""

    deterministic = True

    def __call__(self, block: Block) -> Family:
        """Makes a point mass at the running sum."""
        return Point(RunningSum())


class Independent(Prior):
    """Scores plus noise: heads independent given what the network computed so far.

    Args:
        scale: Standard deviation of the noise; the paper fixes it at 1.
        learned_scale: Learn the scale, one parameter per head.
    """

    def __init__(self, scale: float = 1.0, learned_scale: bool = False) -> None:
        check_positive("prior.scale", scale)
        self.scale, self.learned_scale = scale, learned_scale

    def __call__(self, block: Block) -> Family:
        """Makes a Gaussian at the scores."""
        return Gaussian(Identity(), self.noise(block))

    def outputs(self, block: Block, scale: float) -> Family:
        return Gaussian(Identity(), HeadScale(block.heads, scale, self.learned_scale))

    def noise(self, block: Block) -> HeadScale:
        """The scale of a block's noise."""
        return HeadScale(block.heads, self.scale, self.learned_scale)


class Autoregressive(Independent):
    """Scores plus noise, each head linear in the heads before it.

    The paper tried heads given the heads before them, in a form that its footnote 7 does not state.

    Args:
        scale: Standard deviation of a head given the heads before it.
        learned_scale: Learn the scale, one parameter per head.
    """

    def __call__(self, block: Block) -> Family:
        """Makes a full Gaussian over heads at the scores."""
        factor = CholeskyFactor(block.heads, self.scale, self.learned_scale)
        return Correlated(Identity(), factor)


class Cascaded(Independent):
    """Scores plus fused logits below, plus noise: eq. 4 and App. A of the paper.

    Args:
        scale: Standard deviation of the noise; the paper fixes it at 1.
        learned_scale: Learn the scale, one parameter per head.
        hidden: Hidden units of the fusion for each head, the paper's alpha (2, 4 or 8).
        link: The residual link of App. A, which passes all noise below on; without it only the
            fusion passes noise on.
        zero: Initialise the fusion at zero.
    """

    def __init__(
        self,
        scale: float = 1.0,
        learned_scale: bool = False,
        hidden: int = 4,
        link: bool = True,
        zero: bool = False,
    ) -> None:
        super().__init__(scale, learned_scale)
        check_number("prior.hidden", hidden, whole=True)
        check_within("prior.hidden", hidden, 1, MAX_WIDTH)
        self.hidden, self.link, self.zero = hidden, link, zero

    def __call__(self, block: Block) -> Family:
        """Makes a Gaussian at scores + MLP(below), and + below with the link."""
        return Gaussian(Cascade(block, self.hidden, self.link, self.zero), self.noise(block))


class Released(Independent):
    """Scores plus below plus fusion of their sum, plus noise: what the authors' code computes.

    Args:
        scale: Standard deviation of the noise; the paper fixes it at 1.
        learned_scale: Learn the scale, one parameter per head.
    """

    def __call__(self, block: Block) -> Family:
        """Makes a Gaussian at c + below + fusion(c + below)."""
        return Gaussian(ReleasedCascade(block), self.noise(block))


PRIORS: dict[str, type[Prior]] = {
    "delta": Delta,
    "residual": Residual,
    "independent": Independent,
    "autoregressive": Autoregressive,
    "cascaded": Cascaded,
    "released": Released,
}


def make_prior(name: str, **options: Any) -> Prior:
    """Makes a prior by name.

    Args:
        name: A name of the table ``PRIORS``.
        **options: Arguments of its class.

    Example:
        >>> prior = make_prior("cascaded", hidden=8, link=False)
        >>> deep = Translation.of(corpus, latents=[Logits(prior)], width=8, heads=2, layers=3)
    """
    check_choice("prior", name, PRIORS)
    return PRIORS[name](**options)
