"""Mixers of the positions of a sentence: attention, local attention, n-grams."""

from __future__ import annotations

from functools import partial
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from latentheads.attention.band import Band
from latentheads.attention.cache import AttentionCache
from latentheads.attention.latent import LatentAttention
from latentheads.attention.ngram import NGram, NGramCache
from latentheads.latents.network import Choice
from latentheads.mask import AttentionMask
from latentheads.models.heads import HeadOptions, with_selected_heads
from latentheads.models.mixing import attention_layer_below
from latentheads.models.network import Network
from latentheads.names import Block, side_of


@runtime_checkable
class Mixer(Protocol):
    """A module that mixes the positions in a layer."""

    block: Block

    def mix(
        self,
        x: Tensor,
        attention_mask: AttentionMask,
        below: Tensor | None,
        cache: Any = None,
        choice: Choice | None = None,
        keeps_logits: bool = True,
    ) -> tuple[Tensor, Tensor | None]:
        """Mixes the states, and returns the logits for the block above.

        Args:
            x: States.
            attention_mask: Which positions may attend to which.
            below: The logits of the nearest attention block below.
            cache: The cache of earlier positions, in incremental decoding.
            choice: The selected heads of a block that selects.
            keeps_logits: Whether a block of the stack samples logits or reads those below it.
        """

    def cache(self) -> AttentionCache | NGramCache:
        """Makes an empty cache for incremental decoding."""


class SelfAttention(LatentAttention):
    """Attention to all unmasked positions, or local attention, whose event is the band of pairs.

    With a band a query attends to the n positions that end with it and, in an encoder, to the n
    that begin with it. No tensor of size ``query key`` is made.

    Args:
        band: The band of local attention; None: all positions.
        below: The band of the nearest block below; None if that attends to all positions.
        *options: Arguments of :class:`~latentheads.attention.latent.LatentAttention`.
    """

    def __init__(self, *options: Any, band: Band | None = None, below: Band | None = None) -> None:
        super().__init__(*options)
        self.attention.band = self.band = band
        self.below = below

    def mix(
        self,
        x: Float[Tensor, "*batch query dim"],
        attention_mask: AttentionMask,
        below: Tensor | None,
        cache: AttentionCache | None = None,
        choice: Choice | None = None,
        keeps_logits: bool = True,
    ) -> tuple[Tensor, Tensor | None]:
        """Attends; logits of a block below are 0 outside their own band."""
        if below is not None:
            below = self._fit_below(below, attention_mask.start)
        mask = attention_mask.mask if self.band is None else self.band.mask(attention_mask)
        return self(x, None, mask, below, cache, choice, keeps_logits)

    def _fit_below(self, below: Tensor, start: int) -> Tensor:
        """The logits of the block below for the pairs of this one."""
        if self.band is None:
            return below if self.below is None else self.below.to_dense(below, start)
        if self.below is None:
            return self.band.from_dense(below, start)
        return self.below.to_band(below, self.band)

    def cache(self) -> AttentionCache:
        """Makes an empty cache: of local attention, for the last n - 1 positions."""
        return AttentionCache(max_length=None if self.band is None else self.band.before)


def make_mixer(
    attention_type: str, layer: int, network: Network, heads: HeadOptions
) -> SelfAttention | NGram:
    """Makes the mixer of a layer, with its prior and selector.

    Args:
        attention_type: encoder-self or decoder-self.
        layer: Index of the layer in its stack.
        network: Sizes, and the mixer of each layer.
        heads: What is latent about the heads.
    """
    stack = side_of(attention_type)
    configs, causal = network.stack(stack), stack == "decoder"
    config = configs[layer]
    band = Band(config.window, causal)
    if config.kind == "ngram":
        block = Block(attention_type, layer, network.ngram_heads or network.heads)
        return _make_ngram(block, config.head_width, band, network, heads)
    layer_below = attention_layer_below(configs, layer)
    window = 0 if layer_below is None else configs[layer_below].window
    below = Band(window, causal) if window else None
    first_layer = next(n for n, mixer in enumerate(configs) if mixer.kind != "ngram")
    block = Block(attention_type, layer, network.heads, first_layer)
    own = band if config.kind == "local" else None
    return heads.make_attention(block, network, partial(SelfAttention, band=own, below=below))


def _make_ngram(
    block: Block, head_width: int, band: Band, network: Network, heads: HeadOptions
) -> NGram:
    """Makes an n-gram block, with a prior of its outputs if they have noise."""
    selector = heads.selector_of(block)
    selector = None if selector is None else selector.for_heads(block.heads)
    block = with_selected_heads(block, selector)
    return NGram(
        block,
        network.width,
        head_width,
        band,
        network.ngram_slices,
        network.ngram_context and not band.causal,
        network.activation_dropout,
        heads.logits.output_prior_of(block, network.ngram_noise),
        selector,
    )
