"""What a network and its latents pass to each other: states, active heads, and a few methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from pyro.distributions import TorchDistribution
from torch import Tensor, nn

from latentheads.batch import Batch
from latentheads.names import Block


@dataclass(frozen=True)
class Choice:
    """The selected heads of a block, for each sentence or shared by all sentences of a batch.

    Sentences are the last dimension before slots; particles are in front of them.

    Attributes:
        weight: The factor of the output of the head in each slot: one, with the gradient of a
            relaxation, or zero for an inactive head.
        index: The candidate in each slot; None: every candidate has its own slot.
        active_only: Whether only the heads of ``index`` are computed and all others output 0; such
            a choice is shared by all sentences.
    """

    weight: Float[Tensor, "*sentences slot"]
    index: Int[Tensor, "*sentences slot"] | None = None
    active_only: bool = False

    @property
    def common(self) -> bool:
        """Whether all sentences share the choice."""
        return self.weight.ndim == 1

    def of_active(self) -> Choice:
        """The same choice, with only the active heads computed."""
        index = self.weight.nonzero().squeeze(-1)
        return Choice(self.weight[index], index, active_only=True)

    def unsqueeze(self, hypotheses: int) -> Choice:
        """Adds dimensions for hypotheses after those of sentences."""
        if self.common or not hypotheses:
            return self
        behind = (..., *[None] * hypotheses, slice(None))
        index = None if self.index is None else self.index[behind]
        return Choice(self.weight[behind], index)

    def select(self, sentences: Int[Tensor, " kept"]) -> Choice:
        """Selects some of the sentences."""
        if self.common:
            return self
        index = None if self.index is None else self.index.index_select(0, sentences)
        return Choice(self.weight.index_select(0, sentences), index)


class Passes(NamedTuple):
    """Whole passes of the network, of which each sentence has one, sampled at random.

    Attributes:
        log_prior: Log-probability of each pass, the same for all sentences or of each.
        gates: The gates of heads in each pass, by block.
    """

    log_prior: Float[Tensor, "*sentence component"]
    gates: Mapping[str, Float[Tensor, "component head"]]


@dataclass(frozen=True)
class EncoderDecoderStates:
    """The states of a network below its output layer, and the keys that heads may point at.

    Attributes:
        states: The states that predict the target tokens.
        memory: The keys that heads may point at.
        attn_mask: True where a token may point at a key; one row if the same for all tokens.
        window: Number of earlier states that a token may point at, if the memory is null followed
            by earlier states. 0: all of them, or another memory.
        tokens: The token of each key: that of the source, or the one that followed an earlier
            state; None: keys have none, such as frames.
    """

    states: Float[Tensor, "*batch target dim"]
    memory: Float[Tensor, "*memory key dim"]
    attn_mask: Bool[Tensor, "*mask #target key"]
    window: int = 0
    tokens: Int[Tensor, "*sentences key"] | None = None

    def drop_context(self, context: int) -> EncoderDecoderStates:
        """Drop the first target tokens, which are context and not scored."""
        states, attn_mask = self.states[..., context:, :], self.attn_mask
        attn_mask = attn_mask if attn_mask.shape[-2] == 1 else attn_mask[..., context:, :]
        return EncoderDecoderStates(states, self.memory, attn_mask, self.window, self.tokens)


@runtime_checkable
class NetworkBlock(Protocol):
    """The heads of one output projection; :class:`latentheads.attention.block.HeadBlock` is one."""

    @property
    def block(self) -> Block:
        """The block's address."""

    @property
    def site(self) -> str:
        """Name of the sample site of its heads."""

    @property
    def selector(self) -> Any:
        """What selects its heads among candidates; None: it has no candidates."""

    @property
    def output_weight(self) -> Float[Tensor, "width joined"]:
        """The weight of the output projection."""

    @property
    def has_attention_weights(self) -> bool:
        """Whether the heads have attention weights, and logits for the block above."""

    @property
    def has_noise(self) -> bool:
        """Whether two samples of its heads differ."""

    @property
    def band(self) -> object:
        """The pairs that the heads attend to; None: all."""

    @property
    def can_skip_inactive(self) -> bool:
        """Whether the active heads can be computed without the others."""

    def choose(
        self,
        task: Int[Tensor, " sentence"] | None,
        common: bool,
        sampled: Tensor | None = None,
        num_samples: int = 1,
        skip_inactive: bool = False,
    ) -> Choice:
        """Samples the selection of every task, and returns the choice of every sentence."""

    def make_posterior(self) -> nn.Module:
        """Makes the posterior family for guides that define none for such heads."""


class LatentNetwork(nn.Module, ABC):
    """A network as its latents see it: its blocks, its states and its output layer.

    Attributes:
        output: The output layer.
        takes_particles: Whether states may have dimensions in front of the sentences.
    """

    output: nn.Module
    takes_particles: ClassVar[bool] = True

    @property
    @abstractmethod
    def head_blocks(self) -> Sequence[NetworkBlock]:
        """All blocks of heads."""

    @property
    @abstractmethod
    def selecting_blocks(self) -> Sequence[NetworkBlock]:
        """The blocks that select their heads among candidates."""

    @property
    @abstractmethod
    def samples_heads(self) -> bool:
        """Whether heads of blocks have noise; latents that are summed out count not."""

    @property
    @abstractmethod
    def output_heads(self) -> Any:
        """The heads above the decoder; None: there are none."""

    @property
    def vocabulary_sizes(self) -> dict[str, int]:
        """The vocabulary sizes of source and target, if the model has embeddings of them."""
        return {}

    @property
    @abstractmethod
    def smoothing(self) -> float:
        """Label smoothing of this pass: 0 in evaluation."""

    @abstractmethod
    def states(
        self, batch: Batch, choices: Mapping[str, Choice] | None = None
    ) -> Float[Tensor, "*batch target dim"]:
        """Run the network up to the states that predict each target token.

        Args:
            batch: The sentences.
            choices: The selected heads of blocks that select; default: sampled.
        """

    def hidden(
        self, batch: Batch, choices: Mapping[str, Choice] | None = None
    ) -> EncoderDecoderStates:
        """The inputs of heads above the decoder; a model that supports them overrides it.

        Args:
            batch: The sentences.
            choices: The selected heads of blocks that select; default: sampled.
        """
        raise TypeError(f"{type(self).__name__} has heads above the decoder: define its hidden()")

    @abstractmethod
    def likelihood(
        self, states: Float[Tensor, "*batch target dim"], batch: Batch
    ) -> TorchDistribution:
        """The distribution of the scored tokens; label smoothing applies in training only."""

    @abstractmethod
    def token_distribution(
        self, batch: Batch, choices: Mapping[str, Choice] | None = None
    ) -> TorchDistribution:
        """Run the network, sample latents, and return the distribution of the scored tokens.

        Args:
            batch: The sentences.
            choices: The selected heads of blocks that select; default: sampled.
        """

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the parameters."""
        return next(self.parameters()).dtype

    @property
    def device(self) -> torch.device:
        """The device of the parameters."""
        return next(self.parameters()).device
