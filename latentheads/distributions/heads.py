"""The distribution of a block's heads: what all its forms share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import constraints
from torch.distributions.kl import register_kl

from latentheads.batch import Batch
from latentheads.mask import PairMask
from latentheads.names import Block

__all__ = [
    "BlockStates",
    "HeadContext",
    "HeadVariable",
    "is_expandable",
    "linear_over_heads",
    "standard_normal",
    "sum_over_latent_pairs",
]


@dataclass(slots=True)
class BlockStates:
    """The states that a block reads; let go as soon as its heads are drawn.

    A distribution keeps its context, and Pyro's trace keeps every distribution: without this the
    states of all blocks would be there until the end of a pass.

    Attributes:
        query: Of the positions that ask.
        key: Of the positions that are read; None while decoding token by token, where only keys and
            values of earlier positions are kept.
    """

    query: Float[Tensor, "*batch query dim"] | None = None
    key: Float[Tensor, "*memory key dim"] | None = None

    def forget(self) -> None:
        """Lets the states go."""
        self.query = self.key = None


@dataclass(frozen=True, slots=True)
class HeadContext:
    """Everything a block knows when its heads are drawn: what a family conditions on.

    Where the outputs of n-gram heads are drawn instead of logits, their coordinates stand in the
    place of the keys.

    Attributes:
        scores: ``Q K^T / sqrt(d_head)``, or what n-gram heads compute; finite everywhere, float32
            or wider.
        lower: The logits drawn one block further down the chain; None in the first. There may be
            another number of heads in them, where some were removed: a law reads :attr:`below`.
        mask: Which pairs may be read and which carry a latent.
        block: The block's address: its chain and layer, and ``block.site()``.
        batch: The sentences, their target included: a posterior is told, a prior never.
        states: What :attr:`query` and :attr:`key` are taken from.
    """

    scores: Float[Tensor, "*batch head query key"]
    lower: Float[Tensor, "*below lower query key"] | None
    mask: PairMask
    block: Block | None = None
    batch: Batch | None = None
    states: BlockStates | None = None

    @property
    def below(self) -> Float[Tensor, "*below head query key"] | None:
        """The logits drawn one block further down the chain, of as many heads; None in the first.

        Raises:
            ValueError: There are fewer or more heads below, so that they cannot be matched.
        """
        if self.lower is not None and self.lower.shape[-3] != self.scores.shape[-3]:
            name = "a block" if self.block is None else f"block {self.block.name!r}"
            raise ValueError(
                f"{name} has {self.scores.shape[-3]} heads, the one below {self.lower.shape[-3]}: "
                "a prior or guide that reads the logits below needs as many; take independent or "
                "mean-field"
            )
        return self.lower

    @property
    def query(self) -> Float[Tensor, "*batch query dim"]:
        """The states of the positions that ask, as the block reads them along this sample."""
        return self._state_of("query", None if self.states is None else self.states.query)

    @property
    def key(self) -> Float[Tensor, "*memory key dim"]:
        """The states of the positions that are read: the memory's, or in self-attention its own."""
        return self._state_of("key", None if self.states is None else self.states.key)

    def _state_of(self, name: str, state: Tensor | None) -> Tensor:
        if state is None:
            where = "" if self.block is None else f" of {self.block.name}"
            raise ValueError(
                f"the {name} states{where} are not here: they are there while its heads are drawn, "
                "not afterwards, not in a pass without noise, and those of keys not while decoding"
            )
        return state


def is_expandable(shape: torch.Size, target: torch.Size) -> bool:
    """Whether a tensor of a shape can be expanded to another."""
    sizes = zip(reversed(shape), reversed(target))
    return len(shape) <= len(target) and all(
        size in (1, target_size) for size, target_size in sizes
    )


def standard_normal(like: Tensor, shape: torch.Size | None = None) -> Tensor:
    """Draws N(0, 1) noise of the shape, type and device of a tensor."""
    return torch.randn(like.shape if shape is None else shape, dtype=like.dtype, device=like.device)


def sum_over_latent_pairs(
    density: Float[Tensor, "*batch head query key"], mask: PairMask
) -> Float[Tensor, "*batch"]:
    """Sums an elementwise density over heads and over the pairs that carry a latent."""
    return (density.sum(-3) * mask.latent).sum((-1, -2))


def linear_over_heads(
    weight: Float[Tensor, "outputs inputs"],
    x: Float[Tensor, "*batch inputs pair"],
    bias: Float[Tensor, " outputs"] | None = None,
) -> Float[Tensor, "*batch outputs pair"]:
    """Applies a linear map to the head dimension of flattened pairs, without moving it.

    The map may be of another type: it is applied in that of the pairs.
    """
    flat = x.flatten(0, -3) if x.ndim > 3 else x
    batch_weight = weight.to(x.dtype).expand(flat.shape[0], -1, -1)
    mapped = (
        torch.bmm(batch_weight, flat)
        if bias is None
        else torch.baddbmm(bias.to(x.dtype)[:, None], batch_weight, flat)
    )
    return mapped.view(*x.shape[:-2], *mapped.shape[-2:])


class HeadVariable(TorchDistribution):
    """Logits of all heads of a block, one random variable a sentence; abstract.

    The event is ``head query key``; of n-gram heads, whose outputs are drawn, ``head query dim``:
    all that holds of pairs then holds of the coordinates at a query. Logits are finite everywhere:
    the mask says which pairs count in a density and which are read by the softmax, and it touches
    neither location nor sample.

    A pair that carries no latent counts in no density, but the block above may read it, or a latent
    of the user's own. So a posterior that is restricted leaves it to the prior.

    A subclass draws in ``_from_noise``, scores in ``_log_density``, and gives the same law around another
    location in ``_with_location``; ``sum_over_latent_pairs`` sums a density. Two facts hold for each:
    ``log_prob`` of the value it drew last reuses the noise of that draw, so that no inversion is
    needed, and the density of one value is computed once, so that a prior that is its own
    posterior gives ``log p - log q = 0`` bit for bit, in value and gradient.

    Args:
        location: The mean logits.
        context: What the block knew; carries the mask.
    """

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012
    support = constraints.independent(constraints.real, 3)
    has_rsample = True

    def __init__(
        self, location: Float[Tensor, "*batch head query key"], context: HeadContext
    ) -> None:
        self.location = location
        self.context = context
        self._cached_sample: tuple[Tensor, Tensor] | None = None
        self._cached_log_prob: tuple[Tensor, bool, Tensor] | None = None
        self._cached_expansions: dict[torch.Size, HeadVariable] = {}
        self._prior_elsewhere: HeadVariable | None = None
        super().__init__(location.shape[:-3], location.shape[-3:], validate_args=False)

    @abstractmethod
    def _from_noise(self, noise: Tensor) -> Tensor:
        """Turns standard normal noise into logits."""

    @abstractmethod
    def _log_density(self, value: Tensor, noise: Tensor | None) -> Float[Tensor, "*batch"]:
        """Log-density of a value; ``noise`` is given when the value was drawn here from it."""

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        """Draws logits, differentiable in every parameter."""
        noise = standard_normal(self.location, self._extended_shape(sample_shape))
        value = self._from_noise(noise)
        if self._prior_elsewhere is not None:
            value = self._prior_elsewhere._where_latent(
                value, self._prior_elsewhere._from_noise(noise)
            )
        self._cached_sample = (value, noise)
        return value

    def restrict(self, prior: HeadVariable) -> None:
        """Draws the pairs that carry no latent from the prior, from now on.

        Their log-ratio is then 0, whatever reads them, and the sum over all others is a bound.
        """
        self._prior_elsewhere = prior
        self._cached_expansions = {}

    def complete(self, value: Tensor) -> Tensor:
        """Replaces a value at the pairs that carry no latent by a draw from this law."""
        return self._where_latent(value, self.rsample())

    def _where_latent(self, latent: Tensor, other: Tensor) -> Tensor:
        """One value where a pair carries a latent, the other elsewhere."""
        return torch.where(self.context.mask.latent.unsqueeze(-3) > 0, latent, other)

    def log_prob(self, value: Tensor) -> Float[Tensor, "*batch"]:
        """Sums the log-density over heads and over the pairs that carry a latent."""
        graph = torch.is_grad_enabled()
        if (
            self._cached_log_prob is not None
            and self._cached_log_prob[0] is value
            and self._cached_log_prob[1] == graph
        ):
            return self._cached_log_prob[2]
        noise = None
        if self._cached_sample is not None and self._cached_sample[0] is value:
            noise = self._cached_sample[1] if value.requires_grad or not graph else None
        result = self._log_density(value, noise)
        self._cached_log_prob = (value, graph, result)
        return result

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> HeadVariable:
        """Puts batch dimensions in front, for example a plate of particles."""
        batch_shape = torch.Size(batch_shape)
        if batch_shape == self.batch_shape:
            return self
        if batch_shape not in self._cached_expansions:
            location = self.location.expand(batch_shape + self.event_shape)
            expanded = self._with_location(location)
            if self._prior_elsewhere is not None:
                expanded.restrict(self._prior_elsewhere.expand(batch_shape))
            self._cached_expansions[batch_shape] = expanded
        return self._cached_expansions[batch_shape]

    @abstractmethod
    def _with_location(self, location: Tensor) -> HeadVariable:
        """The same distribution around a location with more batch dimensions."""


@register_kl(HeadVariable, HeadVariable)
def _kl_of_itself(q: HeadVariable, p: HeadVariable) -> Tensor:
    """0 for a posterior that is its prior; no closed form between other forms."""
    if q is p:
        return q.location.new_zeros(q.batch_shape)
    raise NotImplementedError(f"no closed form from {type(q).__name__} to {type(p).__name__}")
