"""The base class of distributions of a block's heads, and the context that they condition on."""

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
from latentheads.layers.numeric import version_of
from latentheads.mask import PairMask
from latentheads.names import Block


@dataclass(slots=True)
class BlockStates:
    """The states that enter a block; released as soon as its heads are sampled.

    A distribution holds its context, and Pyro's trace holds every distribution: without the release
    the states of all blocks would stay in memory until the end of a pass.

    Attributes:
        query: The states at the queries.
        key: The states at the keys; None in incremental decoding, where the cache holds only the
            keys and values of earlier positions.
    """

    query: Float[Tensor, "*batch query dim"] | None = None
    key: Float[Tensor, "*memory key dim"] | None = None

    def release(self) -> None:
        """Frees the states."""
        self.query = self.key = None


@dataclass(frozen=True, slots=True)
class HeadContext:
    """What the distribution of a block's heads is conditioned on.

    For n-gram heads, whose outputs are sampled instead of logits, the key dimension holds the
    coordinates of the output.

    Attributes:
        scores: ``Q K^T / sqrt(d_head)``, or what n-gram heads compute; finite everywhere, float32
            or wider.
        lower: The sampled logits of the block below, of the same attention type; None in the first
            block. Pruning may leave it another number of heads: families use :attr:`below`.
        mask: Which pairs may be attended to, and which carry a latent.
        block: The block's address: its attention type and layer, and ``block.site()``.
        batch: The sentences, including the target: only a posterior may condition on it.
        states: The source of :attr:`query` and :attr:`key`.
    """

    scores: Float[Tensor, "*batch head query key"]
    lower: Float[Tensor, "*below lower query key"] | None
    mask: PairMask
    block: Block | None = None
    batch: Batch | None = None
    states: BlockStates | None = None

    @property
    def below(self) -> Float[Tensor, "*below head query key"] | None:
        """The sampled logits of the block below, of the same shape; None in the first block.

        Raises:
            ValueError: The block below has another number of heads, queries or keys.
        """
        below = self.scores.shape if self.lower is None else self.lower.shape
        for what, own, lower in zip(
            ("heads", "queries", "keys"), self.scores.shape[-3:], below[-3:]
        ):
            if own != lower:
                name = "a block" if self.block is None else f"block {self.block.name!r}"
                raise ValueError(
                    f"{name} has {own} {what}, the one below {lower}: a prior or guide that reads "
                    "the logits below needs as many; take independent or mean-field"
                )
        return self.lower

    @property
    def query(self) -> Float[Tensor, "*batch query dim"]:
        """The states at the queries, in this sample."""
        return self._state_of("query", None if self.states is None else self.states.query)

    @property
    def key(self) -> Float[Tensor, "*memory key dim"]:
        """The states at the keys: the memory's, or in self-attention the block's own."""
        return self._state_of("key", None if self.states is None else self.states.key)

    def _state_of(self, name: str, state: Tensor | None) -> Tensor:
        if state is None:
            where = "" if self.block is None else f" of {self.block.name}"
            raise ValueError(
                f"the {name} states{where} are not available: they are held only while its heads "
                "are sampled, not in a pass without noise, and those of keys not while decoding"
            )
        return state


def is_expandable(shape: torch.Size, target: torch.Size) -> bool:
    """Whether a tensor of a shape can be expanded to another."""
    if shape == target:
        return True
    sizes = zip(reversed(shape), reversed(target))
    return len(shape) <= len(target) and all(
        size in (1, target_size) for size, target_size in sizes
    )


def standard_normal(like: Tensor, shape: torch.Size | None = None) -> Tensor:
    """Samples N(0, 1) noise with the shape, dtype and device of a tensor."""
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
    """Applies a linear map to the head dimension of flattened pairs, without a transpose.

    The map is converted to the dtype of the pairs.
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
    """Logits of all heads of a block, one random variable for each sentence; abstract.

    The event is ``head query key``. For n-gram heads, whose outputs are sampled, it is
    ``head query dim``: coordinates take the place of keys. Logits are finite everywhere. The mask
    selects the pairs that count in the density and those that enter the softmax; it changes neither
    location nor sample.

    A pair that carries no latent is not part of the density, but the block above, or another latent
    of the user, may depend on it. So a restricted posterior samples such pairs from the prior.

    A subclass implements ``_from_noise`` (sampling), ``_log_density``, and ``_with_location`` (the
    same distribution around another location); ``sum_over_latent_pairs`` sums a density. There
    are two caches. ``log_prob`` of the last sample reuses its noise, so that no inversion is
    needed. The log-density of one value is computed once, so that a prior that is its own posterior
    gives ``log p - log q = 0`` bit for bit, in value and gradient.

    Args:
        location: The mean logits.
        context: The context that the heads are conditioned on; it holds the mask.
    """

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012
    support = constraints.independent(constraints.real, 3)
    has_rsample = True

    def __init__(
        self, location: Float[Tensor, "*batch head query key"], context: HeadContext
    ) -> None:
        self.location = location
        self.context = context
        self._cached_sample: tuple[Tensor, int, Tensor] | None = None
        self._cached_log_prob: tuple[Tensor, int, bool, Tensor] | None = None
        self._cached_expansions: dict[torch.Size, HeadVariable] = {}
        self._prior_elsewhere: HeadVariable | None = None
        super().__init__(location.shape[:-3], location.shape[-3:], validate_args=False)

    @abstractmethod
    def _from_noise(self, noise: Tensor) -> Tensor:
        """Turns standard normal noise into logits."""

    @abstractmethod
    def _log_density(self, value: Tensor, noise: Tensor | None) -> Float[Tensor, "*batch"]:
        """Log-density of a value; ``noise`` is given if this object sampled the value from it."""

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        """Samples logits, differentiable in every parameter."""
        noise = standard_normal(self.location, self._extended_shape(sample_shape))
        value = self._from_noise(noise)
        if (prior := self._prior_elsewhere) is not None:
            value = prior._where_latent(value, prior._from_noise(noise))
        self._cached_sample = (value, version_of(value), noise)
        return value

    def restrict(self, prior: HeadVariable) -> None:
        """Samples pairs that carry no latent from the prior from now on.

        Their log-ratio is then 0, whatever depends on them, so that the sum over all other pairs
        is a bound.
        """
        self._prior_elsewhere = prior
        self._cached_expansions = {}

    def complete(self, value: Tensor) -> Tensor:
        """Replaces a value by a sample of this distribution at pairs that carry no latent."""
        return self._where_latent(value, self.rsample())

    def _where_latent(self, latent: Tensor, other: Tensor) -> Tensor:
        """Takes the first value where a pair carries a latent, the second elsewhere."""
        mask = self.context.mask
        is_latent = mask.latent > 0 if mask.is_latent is None else mask.is_latent
        return torch.where(is_latent.unsqueeze(-3), latent, other)

    def log_prob(self, value: Tensor) -> Float[Tensor, "*batch"]:
        """Sums the log-density over heads and over the pairs that carry a latent."""
        if value.is_inference():  # it has no version: whether it was changed is not known
            return self._log_density(value, None)
        graph, version = torch.is_grad_enabled(), version_of(value)
        cached, sampled = self._cached_log_prob, self._cached_sample
        if cached is not None and cached[0] is value and cached[1:3] == (version, graph):
            return cached[3]
        noise = None
        if sampled is not None and sampled[0] is value and sampled[1] == version:
            # a value without a graph is fixed: its noise is not, and would lack a gradient
            noise = sampled[2] if value.requires_grad or not graph else None
        result = self._log_density(value, noise)
        self._cached_log_prob = (value, version, graph, result)
        return result

    def expand(self, batch_shape: Sequence[int], _instance: object = None) -> HeadVariable:
        """Adds batch dimensions in front, for example a plate of particles."""
        batch_shape = torch.Size(batch_shape)
        if batch_shape == self.batch_shape:
            return self
        if batch_shape not in self._cached_expansions:
            expanded = self._with_location(self.location.expand(batch_shape + self.event_shape))
            if self._prior_elsewhere is not None:
                expanded.restrict(self._prior_elsewhere.expand(batch_shape))
            self._cached_expansions[batch_shape] = expanded
        return self._cached_expansions[batch_shape]

    @abstractmethod
    def _with_location(self, location: Tensor) -> HeadVariable:
        """The same distribution around a location with more batch dimensions."""


@register_kl(HeadVariable, HeadVariable)
def _kl_of_itself(q: HeadVariable, p: HeadVariable) -> Tensor:
    """0 for a posterior that is its prior; other pairs of classes have no closed form."""
    if q is p:
        return q.location.new_zeros(q.batch_shape)
    raise NotImplementedError(f"no closed form from {type(q).__name__} to {type(p).__name__}")
