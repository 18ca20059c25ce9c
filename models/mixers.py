"""What mixes the positions of a sentence in a layer: attention, attention to a window, n-grams."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from latentheads.attention import (
    Cache,
    GatePrior,
    LatentAttention,
    last_of,
    pick,
)
from latentheads.band import Band
from latentheads.mask import Reach
from latentheads.names import Block
from latentheads.numeric import dropout
from latentheads.selecting import Choice, Selector
from models.base import attention
from models.mixing import heads_below
from models.network import Network
from models.priors import Prior

__all__ = ["LocalAttention", "Mixer", "NGram", "Recent", "SelfAttention", "mixer"]


@runtime_checkable
class Mixer(Protocol):
    """What a layer asks of the module that mixes its positions."""

    block: Block

    def mix(
        self,
        x: Tensor,
        reach: Reach,
        below: Tensor | None,
        cache: Any = None,
        choice: Choice | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Mixes the states, and returns the logits that the chain hands on.

        Args:
            x: States.
            reach: What positions may read of each other.
            below: The logits drawn in the nearest block below that draws any.
            cache: What earlier positions left, when decoding token by token.
            choice: The selected heads of a block that selects.
        """

    def cache(self) -> Cache | Recent:
        """An empty cache for decoding token by token."""


class SelfAttention(LatentAttention):
    """Attention to all positions that may be read.

    Args:
        below: The band of the nearest block below, where that is local.
        options: Those of :class:`latentheads.attention.LatentAttention`.
    """

    def __init__(self, *options: Any, below: Band | None = None) -> None:
        super().__init__(*options)
        self.below = below

    def mix(
        self,
        x: Float[Tensor, "*batch query dim"],
        reach: Reach,
        below: Tensor | None,
        cache: Cache | None = None,
        choice: Choice | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Attends; logits below that stand in a band are 0 elsewhere."""
        if below is not None and self.below is not None:
            below = self.below.over_keys(below, reach.start)
        return self(x, None, reach.mask, below, cache, choice)


class LocalAttention(LatentAttention):
    """Attention to a window, latent where its chain is: the band of pairs is then the event.

    The scores are those of attention; a query reads the n positions that end with it and, in an
    encoder, the n that begin with it. Nothing of size ``query key`` is made. In a chain that passes
    through windows of several sizes, logits below are 0 where their own window has no pair.

    Args:
        band: The band.
        below: The band of the nearest block below; None where that reads everything.
        options: Those of :class:`latentheads.attention.LatentAttention`.
    """

    def __init__(self, *options: Any, band: Band, below: Band | None = None) -> None:
        super().__init__(*options)
        self.attention.band = self.band = band
        self.below = below

    def mix(
        self,
        x: Float[Tensor, "*batch query dim"],
        reach: Reach,
        below: Tensor | None,
        cache: Cache | None = None,
        choice: Choice | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Attends to the window."""
        if below is not None and self.below is not None:
            below = self.below.widened(below, self.band)
        elif below is not None:
            below = self.band.of_keys(below, reach.start)
        return self(x, None, self.band.mask(reach), below, cache, choice)

    def cache(self) -> Cache:
        """Keeps the keys and values of the last n - 1 positions."""
        return Cache(last=self.band.before)


@dataclass
class Recent:
    """What an n-gram layer keeps while decoding: its last n - 1 inputs.

    Attributes:
        last: n - 1.
        inputs: ``sentence *hypothesis position dim``, so many or fewer.
    """

    last: int
    inputs: Tensor | None = None

    def extend(self, x: Tensor) -> Tensor:
        """Appends new inputs and returns them with all that was kept."""
        if self.inputs is not None:
            x = torch.cat([self.inputs, x], -2)
        self.inputs = last_of(x, self.last)
        return x

    def select(
        self,
        sentences: Int[Tensor, " kept"] | None,
        hypotheses: Int[Tensor, "kept hypothesis"] | None = None,
    ) -> None:
        """Keeps, repeats or reorders sentences, and the hypotheses of each."""
        if self.inputs is not None:
            self.inputs = pick(self.inputs, sentences, hypotheses)


class NGram(nn.Module):
    r"""The multi-head neural n-gram of Loem et al. 2022, eq. 3 and 4.

    .. math:: h_{tk} = \mathrm{ReLU}([x_{t-n+1}; \dots; x_t] W_k + b_k), \quad
        z_t = [h_{t1}; \dots; h_{tK}] W + b

    An encoder concatenates :math:`x_{t-n+1}, \dots, x_{t+n-1}` and, with a context, the maximum
    over the whole sentence. Positions beyond the ends, and padding, are zero. No logits are drawn:
    a chain passes by.

    As the equations stand, K heads of width w compute what one head of width K w does (the n-gram
    of Sun and Iyyer 2021 with as many hidden units); they differ where the reading of the paper is
    that head k sees only the k-th of K slices of each input (``slices``).

    Args:
        block: Its address, and the number of heads K.
        width: Model width d.
        head_width: Width of a head; 0: so that there are about :math:`4 d^2` weights, as in
            attention.
        band: The window.
        slices: Whether a head reads its own slice of every input.
        context: Whether the maximum over the sentence is concatenated.
        dropout: Of the heads.
    """

    def __init__(
        self,
        block: Block,
        width: int,
        head_width: int,
        band: Band,
        slices: bool = False,
        context: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.block, self.band, self.slices = block, band, slices
        self.dropout = dropout
        heads, inputs = block.heads, band.width + context
        read = width // heads if slices else width
        head_width = head_width or max(1, round(4 * width**2 / heads / (inputs * read + width)))
        self.weight = nn.Parameter(torch.empty(heads, head_width, band.width * read))
        self.context = nn.Parameter(torch.empty(heads, head_width, read)) if context else None
        self.bias = nn.Parameter(torch.zeros(heads, head_width))
        self.out = nn.Linear(heads * head_width, width)
        fans = inputs * read + head_width * (1 if slices else heads)
        for weight in (self.weight, self.context):
            if weight is not None:
                nn.init.uniform_(weight, -math.sqrt(6 / fans), math.sqrt(6 / fans))
        nn.init.xavier_uniform_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(
        self,
        x: Float[Tensor, "*batch query dim"],
        reach: Reach,
        cache: Recent | None = None,
    ) -> Float[Tensor, "*batch query dim"]:
        """Reads the window around every position."""
        if reach.valid is not None:
            x = x.masked_fill(~reach.valid.unsqueeze(-1), 0.0)
        known = x if cache is None else cache.extend(x)
        windows = self.band.windows(known, x.shape[-2])
        hidden = self._read(windows, self.weight, self.bias)
        if self.context is not None:
            hidden = hidden + self._read(self._whole(x, reach), self.context)
        return self.out(dropout(F.relu(hidden), self.dropout, self.training))

    def _read(
        self,
        x: Float[Tensor, "*batch query offset dim"],
        weight: Float[Tensor, "head hidden input"],
        bias: Float[Tensor, "head hidden"] | None = None,
    ) -> Float[Tensor, "*batch query heads"]:
        """One product for all heads and all positions of the window."""
        every = None if bias is None else bias.flatten()
        if not self.slices:
            return F.linear(x.flatten(-2), weight.flatten(0, 1), every)
        slices = x.unflatten(-1, (self.block.heads, -1)).movedim(-2, -4).flatten(-2)
        hidden = torch.matmul(slices, weight.mT).transpose(-2, -3).flatten(-2)
        return hidden if every is None else hidden + every

    def _whole(self, x: Tensor, reach: Reach) -> Float[Tensor, "*batch 1 1 dim"]:
        """The maximum over all positions but padding."""
        if reach.valid is not None:
            x = x.masked_fill(~reach.valid.unsqueeze(-1), -torch.inf)
        return x.amax(-2, keepdim=True).unsqueeze(-2)

    def mix(
        self,
        x: Float[Tensor, "*batch query dim"],
        reach: Reach,
        below: Tensor | None,
        cache: Recent | None = None,
        choice: Choice | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Reads the windows; the logits below go on to the next block that attends."""
        return self(x, reach, cache), below

    def cache(self) -> Recent:
        """Keeps the last n - 1 inputs."""
        return Recent(self.band.before)


def mixer(
    chain: str,
    layer: int,
    network: Network,
    prior: Prior,
    latent: Collection[str],
    gate: GatePrior | None = None,
    selector: Selector | None = None,
) -> SelfAttention | LocalAttention | NGram:
    """Makes what mixes the positions in a layer of a stack, latent where its chain is.

    Args:
        chain: encoder-self or decoder-self.
        layer: Layer of the stack.
        network: Sizes, and what is chosen for each layer.
        prior: Makes the prior of a block that attends.
        latent: The chains whose heads are drawn.
        gate: The law of the gates of a block that attends.
        selector: How a block that attends selects its heads.
    """
    stack = chain.split("-")[0]
    chosen, causal = network.stack(stack), stack == "decoder"
    mixing = chosen[layer]
    band = Band(mixing.window, causal)
    if mixing.kind == "ngram":
        return NGram(
            Block(chain, layer, network.ngram_heads or network.heads),
            network.width,
            mixing.head_width,
            band,
            network.ngram_slices,
            network.ngram_context and not causal,
            network.activation_dropout,
        )
    under = heads_below(chosen, layer)
    window = 0 if under is None else chosen[under].window
    below = Band(window, causal) if window else None
    begins = next(n for n, each in enumerate(chosen) if each.kind != "ngram")
    block = Block(chain, layer, network.heads, begins)
    if mixing.kind == "local":
        local = partial(LocalAttention, band=band, below=below)
        return attention(block, network, prior, latent, gate, selector, local)
    whole = partial(SelfAttention, below=below)
    return attention(block, network, prior, latent, gate, selector, whole)
