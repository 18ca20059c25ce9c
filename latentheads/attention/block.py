"""Blocks: heads side by side that one projection reads out. What attention and n-grams share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import pyro
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from latentheads.attention.band import Band
from latentheads.distributions import HeadContext
from latentheads.families import (
    Family,
    Gaussian,
    HeadScale,
    Identity,
    Point,
    check_head_distribution,
)
from latentheads.names import SELECTION, Block
from latentheads.selection.selector import Choice, Selector

__all__ = [
    "BlockCache",
    "HeadBlock",
    "Hook",
    "gather_selected",
    "keep_last",
    "reorder",
    "without_hooks",
]

Hook = Callable[..., None]
"""A watcher: called with the heads of a pass and, last, with which of them speak."""


@dataclass
class BlockCache:
    """The cache of a block while decoding token by token; a subclass says what it keeps."""

    def select(
        self,
        sentences: Int[Tensor, " kept"] | None,
        hypotheses: Int[Tensor, "kept hypothesis"] | None = None,
    ) -> None:
        """Keeps, repeats or reorders sentences, and the hypotheses of each.

        Args:
            sentences: The sentences to keep; None for all as they are.
            hypotheses: For each sentence kept, those of its hypotheses to go on with; None for
                all as they are.
        """


class HeadBlock(nn.Module, ABC):
    """Heads side by side, drawn or chosen, which one projection reads out.

    Attributes:
        block: Its address.
        prior: The law of what is drawn of its heads; None where nothing is drawn.
        selector: Draws which candidates fill its places, at ``<block>.selection``; None: there are
            no candidates but its heads.
        latent: What is drawn of its heads: the last part of the site's name.
        has_attention_weights: Whether its heads have attention weights.
        band: The pairs that its heads look at; None: all.
        watchers: Functions called in every pass with the heads, and with which of them speak.
    """

    prior: Family | None
    latent: str
    has_attention_weights: bool = False
    band: Band | None = None

    def __init__(self, block: Block, selector: Selector | None) -> None:
        super().__init__()
        self.block = block
        self.selector = selector
        self.hooks: list[Hook] = []

    @property
    @abstractmethod
    def projection(self) -> nn.Module:
        """The module that reads the heads out."""

    @property
    def output_weight(self) -> Float[Tensor, "width joined"]:
        """The weights that read the heads out, side by side: the projection's own, not a copy."""
        return cast(Tensor, self.projection.weight)

    @property
    @abstractmethod
    def size(self) -> int:
        """Width of what a head says."""

    @property
    def active_heads(self) -> list[int]:
        """Places of the heads that are read out: all that there are, unless some were removed."""
        return list(range(self.block.heads))

    @property
    def num_active_heads(self) -> int:
        """Heads that are read out."""
        return len(self.active_heads)

    @property
    def site(self) -> str:
        """Name of the sample site of its heads."""
        return self.block.site(self.latent)

    @property
    def has_noise(self) -> bool:
        """Whether two draws of its heads differ."""
        return not (self.prior is None or isinstance(self.prior, Point))

    def make_posterior(self) -> Family:
        """A family for guides that have none of their own for such heads; it starts at the prior.

        They are independent given what they compute, and every head has its scale.
        """
        return Gaussian(Identity(), self._learned_scale())

    def _learned_scale(self) -> HeadScale:
        """A scale for every head that starts at the prior's."""
        start = self.prior.scale.value if isinstance(self.prior, Gaussian) else 1.0
        return HeadScale(self.block.heads, start, learned=True)

    @property
    def can_skip_inactive(self) -> bool:
        """Whether the heads that speak may be computed without the others."""
        return False

    def choose(
        self,
        task: Int[Tensor, " sentence"] | None,
        common: bool,
        sampled: Tensor | None = None,
        num_samples: int = 1,
        skip_inactive: bool = False,
    ) -> Choice:
        """Draws which candidates fill the places, of every task, and takes the sentences' own.

        Stands in the plate of the tasks, before any sentence is looked at.

        Args:
            task: The task of every sentence; None: all have the first.
            common: Whether all sentences have one task.
            sampled: What was drawn before; None draws it.
            num_samples: Draws that the sentences stand for, one behind the other.
            skip_inactive: Whether no block above looks at its heads, so that those that speak suffice.
        """
        selector, chain = self.selector, self.block.chain
        assert selector is not None
        value = sampled
        if value is None:
            value = selector.sample(self.block.site(SELECTION), chain, self.output_weight)
        rows, tasks = value.shape[-2], selector.tasks(chain)
        if rows == tasks:
            num_samples = 1  # one draw for all, such as the likeliest selection
        elif rows != num_samples * tasks:
            raise ValueError(
                f"site {self.block.site('selection')!r}: {rows} rows for {tasks} tasks and "
                f"{num_samples} draws: a batch says how many draws its sentences stand for"
            )
        choice = selector.choose(value, task, common, num_samples)
        own_places = choice.index is None and choice.common
        if (
            self.training
            or not own_places
            or value.requires_grad
            or not (skip_inactive and self.can_skip_inactive)
        ):
            return choice
        return choice.of_active()

    def check_removal(self, computed: Sequence[int], active: Sequence[int]) -> None:
        """Refuses a removal that the block cannot take; nothing is changed before all agree.

        Args:
            computed: Places of the heads that are still computed.
            active: Those of them that are read out.
        """

    def prune(self, computed: Sequence[int], active: Sequence[int]) -> None:
        """Removes all other heads for good; a block without heads has no site.

        Args:
            computed: Places of the heads that are still computed; fewer only where the
                prior does not mix heads.
            active: Those of them that are read out.
        """
        if self.prior is not None and len(computed) < self.block.heads:
            self.prior.prune(computed)
        if not computed:
            self.prior = None
        self._prune_weights(computed, active)
        self.block = replace(self.block, heads=len(computed))

    @abstractmethod
    def _prune_weights(self, computed: Sequence[int], active: Sequence[int]) -> None:
        """Removes the weights of all other heads."""

    def _sample_heads(self, context: HeadContext) -> Tensor:
        """Draws the heads, or takes them as they were computed."""
        if self.prior is None:
            return context.scores
        distribution = self.prior(context)
        check_head_distribution(self.site, distribution, context.scores.shape)
        value: Tensor = pyro.sample(self.site, distribution)
        if context.states is not None:
            context.states.forget()
        return value

    def _call_hooks(self, *heads: Any) -> None:
        """Calls the watchers."""
        for hook in self.hooks:
            hook(*heads)

    def _get_active_heads(
        self,
        heads: Shaped[Tensor, "*batch computed query any"],
        choice: Choice | None,
    ) -> Bool[Tensor, "*out head"]:
        """True at heads that are heard: those chosen, or with an open gate, and read out.

        Args:
            heads: Something about every query of the heads that were computed.
            choice: The heads in the places.
        """
        active = heads.new_ones(heads.shape[:-2], dtype=torch.bool)
        if choice is not None:
            active = active & (choice.weight != 0)
        if choice is not None and choice.silent and choice.index is not None:
            inactive = active.new_zeros(*active.shape[:-1], self.block.heads)
            active = inactive.index_copy(-1, choice.index, active)
        read_out = self.output_weight.unflatten(-1, (self.num_active_heads, -1))
        return active & read_out.any(0).any(-1)


@contextmanager
def without_hooks(model: nn.Module) -> Iterator[None]:
    """Suspends the watchers of a model's blocks."""
    hooks_of_blocks = {m: m.hooks for m in model.modules() if isinstance(m, HeadBlock)}
    for block in hooks_of_blocks:
        block.hooks = []
    try:
        yield
    finally:
        for block, hooks in hooks_of_blocks.items():
            block.hooks = hooks


def gather_selected(
    heads: Float[Tensor, "*batch candidate position dim"], choice: Choice | None
) -> Float[Tensor, "*out place position dim"]:
    """Takes the chosen candidates of every sentence; all of them where sentences share a choice."""
    if choice is None or choice.index is None or choice.common:
        return heads
    index = choice.index[..., None, None]
    missing = index.ndim - heads.ndim
    return torch.take_along_dim(heads[(None,) * missing], index[(None,) * -missing], -3)


def keep_last(
    states: Float[Tensor, "*batch position dim"], number: int | None
) -> Float[Tensor, "*batch kept dim"]:
    """The last positions, at most this many; None keeps all."""
    return states if number is None else states[..., max(0, states.shape[-2] - number) :, :]


def reorder(
    cached: Shaped[Tensor, "sentence ..."],
    sentences: Int[Tensor, " kept"] | None,
    hypotheses: Int[Tensor, "kept hypothesis"] | None,
) -> Shaped[Tensor, "kept ..."]:
    """Keeps, repeats or reorders what is held of sentences and hypotheses; None for all."""
    if hypotheses is None:
        return cached if sentences is None else cached.index_select(0, sentences)
    if sentences is None:
        sentences = torch.arange(len(hypotheses), device=hypotheses.device)
    rows = sentences[:, None] * cached.shape[1] + hypotheses
    return cached.flatten(0, 1).index_select(0, rows.flatten()).unflatten(0, rows.shape)
