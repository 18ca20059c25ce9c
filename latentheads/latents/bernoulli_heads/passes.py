"""Passes of a network with given gates of its heads: all subsets in one pass, or in slices."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from pyro import poutine
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from latentheads.attention.block import HeadBlock, without_hooks
from latentheads.batch import Batch
from latentheads.distributions.tokens import Tokens
from latentheads.latents.bernoulli_heads.lower_layers import LowerLayers
from latentheads.latents.bernoulli_heads.subsets import all_subsets
from latentheads.latents.network import Choice, LatentNetwork
from latentheads.latents.summed_out import SummedOut
from latentheads.latents.token_cache import TokenCache
from latentheads.layers.output import ExpectedGradient

NUMBERS = 24
"""Numbers that a layer holds for one number of its output, by and large."""


def choices_of(
    blocks: Sequence[HeadBlock], gates: Float[Tensor, "*sentences head"]
) -> dict[str, Choice]:
    """The active heads of blocks, from the gates of all of them side by side."""
    parts = gates.split([module.num_active_heads for module in blocks], -1)
    return {module.block.name: Choice(part) for module, part in zip(blocks, parts, strict=True)}


@dataclass
class GatedPass:
    """One batch in a network whose blocks have gates.

    The layers below run once. All others run for every subset, which is a dimension in front of
    the sentences, or one after the other where the model has no particles or sums out a latent.

    Attributes:
        model: The model.
        batch: The sentences.
        blocks: The blocks with gates, from the lowest.
        choices: The active heads of other blocks.
        gibibytes: The memory that the layers above may take, by an estimate; more subsets are
            processed in slices. With a gradient a slice is computed again in the backward pass.
        handlers: Makes the context of passes of single subsets, such as ``PlugIn``.
        lower: The layers below.
        cache: Results of :meth:`log_probs_of_subsets`.
        temperature: Of relaxed gates.
    """

    model: LatentNetwork
    batch: Batch
    blocks: Sequence[HeadBlock]
    choices: Mapping[str, Choice] = field(default_factory=dict)
    gibibytes: float = math.inf
    handlers: Callable[[], AbstractContextManager[Any]] = nullcontext
    cache: TokenCache[Tensor] = field(default_factory=TokenCache)
    temperature: float = 1.0

    def __post_init__(self) -> None:
        # logits reach the block above beside the outputs of layers: a recorded output has none
        passes_logits = any(
            module.prior is not None and module.prior.dependence.on_lower_logits
            for module in self.model.head_blocks
            if isinstance(module, HeadBlock)
        )
        called = [block.called_module for block in self.blocks]
        self.lower = LowerLayers(self.model, called, reuse=not passes_logits)
        self._one_by_one = not self.model.takes_particles or self.model.output_heads is not None
        device = self.model.device.type
        self._autocast = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)

    @property
    def heads(self) -> list[int]:
        """Heads of every block."""
        return [module.num_active_heads for module in self.blocks]

    def tokens_given(self, gates: Float[Tensor, "*sample head"]) -> Tokens:
        """Runs the network with gates, and returns the distribution of the tokens.

        The first pass records the layers below.
        """
        if self.lower.is_recorded:
            return self._tokens_given(gates)
        with self.lower.record():
            return self._tokens_given(gates)

    def _tokens_given(self, gates: Tensor) -> Tokens:
        choices = self._choices(gates)
        if self.model.output_heads is not None:
            return cast(Tokens, self.model.token_distribution(self.batch, choices))
        return self._likelihood(self.model.states(self.batch, choices))

    def _choices(self, gates: Tensor) -> dict[str, Choice]:
        return {**self.choices, **choices_of(self.blocks, gates)}

    def log_probs_of_subsets(
        self,
        tokens: Int[Tensor, "batch target"],
        expected_gradient: Float[Tensor, "... subset"] | None = None,
    ) -> Float[Tensor, "*batch subset"]:
        """Log p(y | x, b) of every sentence for all subsets b of the heads; cached.

        Args:
            tokens: The scored tokens.
            expected_gradient: What the gradient is expected to be, up to a factor.
        """
        return self.cache.get(tokens, lambda: self._sum_tokens(tokens, expected_gradient))

    def _sum_tokens(
        self,
        tokens: Int[Tensor, "batch target"],
        expected_gradient: Float[Tensor, "... subset"] | None,
    ) -> Float[Tensor, "*batch subset"]:
        dtype = torch.promote_types(self.model.dtype, torch.float32)
        like = torch.empty((), device=self.model.device, dtype=dtype)
        self._record()
        subsets = all_subsets(sum(self.heads), like)
        subsets = subsets.view(len(subsets), *(1,) * (1 + self.lower.particles), -1)
        expected = _of_tokens(expected_gradient, subsets.ndim)
        return self.token_log_probs(subsets, tokens, expected).sum(-1).movedim(0, -1)

    def token_log_probs(
        self,
        gates: Float[Tensor, "sample *sentences head"],
        tokens: Int[Tensor, "batch target"],
        expected_gradient: ExpectedGradient = None,
    ) -> Float[Tensor, "sample *batch unit"]:
        """Log-probability of every token given gates, several samples in one pass.

        Args:
            gates: The gates of all blocks side by side, of every sentence or of all.
            tokens: The scored tokens.
            expected_gradient: What the gradient is expected to be; see ``Output.log_prob``.
        """
        self._record()
        slices = gates.split(1 if self._one_by_one else self._slice_size())
        if len(slices) == 1:
            return self._log_probs(gates, tokens, expected_gradient)
        if not torch.is_grad_enabled():
            return torch.cat([self._log_probs(part, tokens) for part in slices])
        if self._one_by_one or len(slices) > NUMBERS:
            return torch.cat(_checkpoint_each(self._log_probs, slices, tokens))
        # the states of all slices take no more memory than the layers of one
        states = torch.cat(_checkpoint_each(self._states, slices))
        with self._hidden():
            return self._likelihood(states).token_log_prob(tokens, expected_gradient)

    def _record(self) -> None:
        """Records the layers below, unless a pass did so already."""
        if not self.lower.is_recorded:
            gates = torch.ones(sum(self.heads), device=self.model.device, dtype=self.model.dtype)
            with self._hidden(), self.lower.record():
                self._tokens_given(gates)

    def _log_probs(
        self, gates: Tensor, tokens: Tensor, expected_gradient: ExpectedGradient = None
    ) -> Tensor:
        """Log-probability of every token, or of every sentence if a latent is summed out."""
        if self._one_by_one:
            with self._hidden(), self.lower.replay():
                distribution = self._tokens_given(gates[0])
                if isinstance(distribution, SummedOut):
                    return distribution.log_evidence(tokens)[None, ..., None]
                return distribution.token_log_prob(tokens, expected_gradient)[None]
        states = self._states(gates)
        with self._hidden():
            return self._likelihood(states).token_log_prob(tokens, expected_gradient)

    def _states(self, gates: Tensor) -> Tensor:
        """The states that the output layer reads, with the layers below as recorded."""
        with self._hidden(), self.lower.replay():
            return self.model.states(self.batch, self._choices(gates))

    def _likelihood(self, states: Tensor) -> Tokens:
        return cast(Tokens, self.model.likelihood(states, self.batch))

    def _hidden(self) -> ExitStack:
        """Context of a pass that no handler and no hook of a block sees."""
        enabled, dtype = self._autocast
        contexts = ExitStack()
        contexts.enter_context(poutine.block())
        contexts.enter_context(self.handlers())
        contexts.enter_context(without_hooks(self.model))
        contexts.enter_context(torch.autocast(self.model.device.type, dtype, enabled))
        return contexts

    def _slice_size(self) -> int:
        """Number of subsets of a slice."""
        if math.isinf(self.gibibytes):
            return 2 ** sum(self.heads)
        layers = self._num_blocks_above() if torch.is_grad_enabled() else 1
        numbers = max(self.lower.size, self.batch.target.numel()) * NUMBERS * layers
        return max(1, int(self.gibibytes * 2**30 / (4 * numbers)))

    def _num_blocks_above(self) -> int:
        """Number of blocks that run for every subset."""
        blocks = list(self.model.head_blocks)
        return len(blocks) - min(map(blocks.index, self.blocks)) if self.lower.size else len(blocks)


def _of_tokens(
    table: Float[Tensor, "*batch subset"] | None, dimensions: int
) -> Float[Tensor, "subset *sentences 1"] | None:
    """A value of each sentence and subset as one of each token; None if particles do not fit."""
    if table is None or table.ndim >= dimensions:
        return None
    rows = table.detach().movedim(-1, 0)
    missing = dimensions - 1 - rows.ndim
    return rows[(slice(None), *(None,) * missing, ..., None)]


def _checkpoint_each(
    function: Callable[..., Tensor], parts: Sequence[Tensor], *arguments: Any
) -> list[Tensor]:
    """Calls a function of each part, which the backward pass calls again."""
    return [checkpoint(function, part, *arguments, use_reentrant=False) for part in parts]
