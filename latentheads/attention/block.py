"""Blocks: the heads of one output projection. The base class of attention and n-grams."""

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
from latentheads.attention.reorder import reorder
from latentheads.distributions.heads import HeadContext
from latentheads.families.family import Family, check_head_distribution
from latentheads.latents.network import Choice
from latentheads.latents.selector import Selector
from latentheads.names import SELECTION, Block

Hook = Callable[..., None]
"""A function called in each pass with the heads and, last, with which of them are active."""


@dataclass
class BlockCache:
    """The cache of a block in incremental decoding; subclasses hold the tensors, or None.

    Attributes:
        has_hypotheses: Whether each hypothesis has its own rows; all share those of a memory.
    """

    has_hypotheses = True

    def select(
        self,
        sentences: Int[Tensor, " kept"] | None,
        hypotheses: Int[Tensor, "kept hypothesis"] | None = None,
    ) -> None:
        """Selects, repeats or reorders sentences, and the hypotheses of each.

        Args:
            sentences: Indices of the sentences; None: all.
            hypotheses: For each of these sentences, the indices of its hypotheses; None: all.
        """
        own_hypotheses = hypotheses if self.has_hypotheses else None
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, reorder(value, sentences, own_hypotheses))


class HeadBlock(nn.Module, ABC):
    """The heads of one output projection; they may be latent, and selected among candidates.

    Attributes:
        block: The block's address.
        prior: The family of the latent heads; None for a deterministic block.
        selector: Selects the candidates that fill the block's slots, at ``<block>.selection``;
            None: the block has no candidates beyond its heads.
        latent: What is latent about the heads: the last part of the site's name.
        has_attention_weights: Whether the heads have attention weights, and logits for the block
            above.
        band: The pairs that the heads attend to; None: all.
        hooks: Functions called in every pass with the heads and with which of them are active.
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
        """The output projection; in a network that is not ours it may be a norm before it."""

    @property
    def output_weight(self) -> Float[Tensor, "width joined"]:
        """The weight of the output projection, the columns of all heads."""
        return cast(Tensor, self.projection.weight)

    def scale_output(self, factors: Float[Tensor, " joined"]) -> None:
        """Multiplies the columns of that weight in place."""
        cast(Tensor, self.projection.weight).mul_(factors)

    @property
    @abstractmethod
    def size(self) -> int:
        """Width of a head's output."""

    @property
    def active_heads(self) -> list[int]:
        """Indices of the heads that the output projection uses: all, unless some were pruned."""
        return list(range(self.block.heads))

    @property
    def num_active_heads(self) -> int:
        """Number of heads that the output projection uses."""
        return len(self.active_heads)

    @property
    def called_module(self) -> nn.Module:
        """The module whose call computes its heads."""
        return self

    @property
    def site(self) -> str:
        """Name of the sample site of its heads."""
        return self.block.site(self.latent)

    @property
    def has_noise(self) -> bool:
        """Whether two samples of its heads differ."""
        return self.prior is not None and self.prior.has_noise

    @abstractmethod
    def make_posterior(self) -> Family:
        """Makes the posterior family for guides that define none for such heads.

        It is initialised at the prior. Heads are independent given their scores, and every head
        has a learned scale.
        """

    @property
    def can_skip_inactive(self) -> bool:
        """Whether the active heads can be computed without the others."""
        return False

    def choose(
        self,
        task: Int[Tensor, " sentence"] | None,
        common: bool,
        sampled: Tensor | None = None,
        num_samples: int = 1,
        skip_inactive: bool = False,
    ) -> Choice:
        """Samples the selection of every task, and returns the choice of every sentence.

        It is called inside the plate of the tasks, before the sentences are processed.

        Args:
            task: The task of every sentence; None: all have the first.
            common: Whether all sentences have one task.
            sampled: A selection that was sampled before; None samples it.
            num_samples: Number of samples that are stacked along the batch dimension.
            skip_inactive: Whether no block above depends on its heads, so that only the active
                heads need be computed.
        """
        selector, attention_type = self.selector, self.block.attention_type
        assert selector is not None
        value = sampled
        if value is None:
            value = selector.sample(self.block.site(SELECTION), attention_type, self.output_weight)
        rows, tasks = value.shape[-2], selector.num_tasks(attention_type)
        if rows == tasks:
            num_samples = 1  # one selection for all samples, such as the mode
        elif rows != num_samples * tasks:
            raise ValueError(
                f"site {self.block.site('selection')!r}: {rows} rows for {tasks} tasks and "
                f"{num_samples} samples: a batch must say how many samples it stacks"
            )
        choice = selector.choose(value, task, common, num_samples)
        # the gradient of a selection needs the outputs of inactive heads too
        is_fixed = not self.training and not value.requires_grad
        every_head_has_a_slot = choice.index is None and choice.common
        if is_fixed and every_head_has_a_slot and skip_inactive and self.can_skip_inactive:
            return choice.of_active()
        return choice

    def check_removal(self, computed: Sequence[int], active: Sequence[int]) -> None:
        """Raises an error if the block cannot be pruned so; changes nothing.

        Args:
            computed: Indices of the heads that are still computed.
            active: Those of them that the output projection still uses.
        """

    def prune(self, computed: Sequence[int], active: Sequence[int]) -> None:
        """Removes all other heads; a block without heads has no site.

        Args:
            computed: Indices of the heads that are still computed; fewer than all only where no
                head depends on another.
            active: Those of them that the output projection still uses.
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
        """Samples the heads; without a prior, returns the scores."""
        if self.prior is None:
            return context.scores
        site, distribution = self.site, self.prior(context)
        check_head_distribution(site, distribution, context.scores.shape)
        value: Tensor = pyro.sample(site, distribution)
        if context.states is not None:
            context.states.release()
        return value

    def _call_hooks(self, *heads: Any) -> None:
        """Calls the hooks."""
        for hook in self.hooks:
            hook(*heads)

    def _get_active_heads(
        self,
        heads: Shaped[Tensor, "*batch computed query any"],
        choice: Choice | None,
    ) -> Bool[Tensor, "*out head"]:
        """True at active heads: selected, or with an open gate, and with nonzero output weights."""
        active = heads.new_ones(heads.shape[:-2], dtype=torch.bool)
        if choice is not None:
            active = active & (choice.weight != 0)
        if choice is not None and choice.active_only and choice.index is not None:
            inactive = active.new_zeros(*active.shape[:-1], self.block.heads)
            active = inactive.index_copy(-1, choice.index, active)
        read_out = self.output_weight.unflatten(-1, (self.num_active_heads, -1))
        return active & read_out.any(0).any(-1)


@contextmanager
def without_hooks(model: nn.Module) -> Iterator[None]:
    """Suspends the hooks of a model's blocks."""
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
) -> Float[Tensor, "*out slot position dim"]:
    """Gathers the selected candidates of every sentence; all where sentences share a choice."""
    if choice is None or choice.index is None or choice.common:
        return heads
    index = choice.index[..., None, None]
    # particles may be in front of one of them: the other gets dimensions of size 1
    missing = index.ndim - heads.ndim
    heads, index = heads[(None,) * max(0, missing)], index[(None,) * max(0, -missing)]
    return torch.take_along_dim(heads, index, -3)


def keep_last(
    states: Float[Tensor, "*batch position dim"], number: int | None
) -> Float[Tensor, "*batch kept dim"]:
    """Keeps at most this many of the last positions; None: all."""
    return states if number is None else states[..., max(0, states.shape[-2] - number) :, :]
