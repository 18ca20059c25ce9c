"""Layers and stacks of attention blocks; each passes its logits to the block above."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import cast

from jaxtyping import Float
from torch import Tensor, nn

from latentheads.attention.block import HeadBlock
from latentheads.attention.latent import LatentAttention
from latentheads.batch import SentenceTasks
from latentheads.latents.network import Choice
from latentheads.mask import AttentionMask, PairMask
from latentheads.model import DecodingState
from latentheads.models.mixers import Mixer
from latentheads.models.network import FeedForward, Network, Residual

NONE: Mapping[str, Choice] = MappingProxyType({})


class Layer(nn.Module):
    """A Transformer layer: self-attention or another mixer, cross-attention, feed-forward."""

    def __init__(
        self,
        network: Network,
        inner: Mixer,
        cross: LatentAttention | None = None,
        adapters: nn.ModuleList | None = None,
    ) -> None:
        super().__init__()
        self.adapters = adapters
        self.inner = inner
        self.inner_step = Residual(network)
        self.cross = cross
        self.cross_step = None if cross is None else Residual(network)
        self.feed_forward = FeedForward(network)
        self.feed_forward_step = Residual(network)

    def forward(
        self,
        x: Float[Tensor, "*batch query dim"],
        attention_mask: AttentionMask,
        below: tuple[Tensor | None, Tensor | None],
        memory: Float[Tensor, "*memory key dim"] | None = None,
        memory_mask: PairMask | None = None,
        state: DecodingState | None = None,
        choices: Mapping[str, Choice] = NONE,
        task: SentenceTasks | None = None,
        keeps_logits: tuple[bool, bool] = (True, True),
    ) -> tuple[Tensor, tuple[Tensor | None, Tensor | None]]:
        """Transforms the states, and returns the sampled logits of both blocks.

        Args:
            x: States.
            attention_mask: Which positions may attend to which.
            below: Logits of the nearest blocks below: self, cross.
            memory: The states that cross-attention attends to; None without cross-attention.
            memory_mask: Validity of the pairs of cross-attention.
            state: Caches, in incremental decoding.
            choices: The selected heads of blocks that select.
            task: The task of every sentence, for adapters.
            keeps_logits: Whether a block of the stack samples logits or reads them: self, cross.
        """
        choice = choices.get(self.inner.block.name)
        if state is not None and choice is not None:
            choice = choice.unsqueeze(x.ndim - 3)
        cache = state and state.cache(self.inner)
        normalised = self.inner_step.prepare_input(x)
        update, inner = self.inner.mix(
            normalised, attention_mask, below[0], cache, choice, keeps_logits[0]
        )
        x = self._adapt_to_task(self.inner_step.add_update(x, update), 0, task, state)
        cross = None
        if self.cross is not None and self.cross_step is not None:
            if memory is None or memory_mask is None:
                raise ValueError("cross-attention must be given memory and memory_mask")
            cache = state and state.cache(self.cross)
            normalised = self.cross_step.prepare_input(x)
            if state is not None:
                normalised = normalised.flatten(1, -2)  # hypotheses are queries of one memory
            choice = choices.get(self.cross.block.name)
            update, cross = self.cross(
                normalised, memory, memory_mask, below[1], cache, choice, keeps_logits[1]
            )
            x = self.cross_step.add_update(x, update if state is None else update.view(x.shape))
        x = self.feed_forward_step(x, self.feed_forward)
        return self._adapt_to_task(x, 1, task, state), (inner, cross)

    def _adapt_to_task(
        self, x: Tensor, index: int, task: SentenceTasks | None, state: DecodingState | None
    ) -> Tensor:
        if self.adapters is None:
            return x
        if state is None:
            return self.adapters[index](x, task)
        return self.adapters[index](x.flatten(1, -2), task).view(x.shape)


class Stack(nn.Module):
    """A stack of layers, whose attention blocks pass their logits upwards."""

    def __init__(self, network: Network, layers: int, make_layer: Callable[[int], Layer]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(make_layer(depth) for depth in range(layers))
        self.norm = nn.LayerNorm(network.width) if network.norm.ends_stack else nn.Identity()

    def forward(
        self,
        x: Float[Tensor, "*batch query dim"],
        attention_mask: AttentionMask,
        memory: Float[Tensor, "*memory key dim"] | None = None,
        memory_mask: PairMask | None = None,
        state: DecodingState | None = None,
        choices: Mapping[str, Choice] = NONE,
        task: SentenceTasks | None = None,
    ) -> Float[Tensor, "*out query dim"]:
        """Runs all layers."""
        below: tuple[Tensor | None, Tensor | None] = (None, None)
        keeps_logits = self._keeps_logits()
        layers: Iterable[nn.Module] = self.layers
        for layer in layers:
            x, below = layer(
                x, attention_mask, below, memory, memory_mask, state, choices, task, keeps_logits
            )
        return self.norm(x)

    def _keeps_logits(self) -> tuple[bool, bool]:
        """Whether a block samples logits, and so may read those below it: self, cross."""
        layers = [cast(Layer, layer) for layer in self.layers]
        inner = (cast(HeadBlock, layer.inner) for layer in layers)
        crosses = (layer.cross for layer in layers if layer.cross is not None)
        return (
            any(block.prior is not None for block in inner),
            any(cross.prior is not None for cross in crosses),
        )
