"""The options of a model's heads, from which every block is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from latentheads.attention.latent import LatentAttention
from latentheads.errors import shown
from latentheads.families import Family
from latentheads.latents.logits.priors import Prior
from latentheads.latents.selector import Selector
from latentheads.models.network import Network
from latentheads.names import Block

A = TypeVar("A", bound=LatentAttention)


@dataclass(frozen=True)
class HeadOptions:
    """What is latent about the heads of a model.

    Attributes:
        prior: Makes the prior of each block.
        latent: The attention types whose heads are latent.
        selector: Selects heads among candidates; None: all heads are active.
    """

    prior: Prior
    latent: tuple[str, ...]
    selector: Selector | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.prior, Prior):
            is_class = isinstance(self.prior, type)
            value = f"the class: {self.prior.__name__}()" if is_class else shown(self.prior)
            raise ValueError(
                f"prior must be a Prior, such as make_prior('independent'), got {value}"
            )

    def prior_of(self, block: Block) -> Family | None:
        """The prior of a block's logits; None if they are deterministic."""
        return self.prior(block) if block.attention_type in self.latent else None

    def output_prior_of(self, block: Block, noise: float) -> Family | None:
        """The prior of the outputs of n-gram heads; None if they are deterministic."""
        is_latent = noise > 0 and block.attention_type in self.latent
        return self.prior.outputs(block, noise) if is_latent else None

    def selector_of(self, block: Block) -> Selector | None:
        """The selector of a block; None if blocks of its attention type do not select."""
        selects = (
            self.selector is not None and block.attention_type in self.selector.attention_types
        )
        return self.selector if selects else None

    def make_attention(
        self,
        block: Block,
        network: Network,
        kind: Callable[..., A] = LatentAttention,  # type: ignore[assignment]
    ) -> A:
        """Makes an attention block with its prior and selector."""
        selector = self.selector_of(block)
        block = with_selected_heads(block, selector)
        family = self.prior_of(block)
        return kind(block, network.width, family, network.attention_dropout, selector)


def with_selected_heads(block: Block, selector: Selector | None) -> Block:
    """The block with as many heads as its selector has slots."""
    return block if selector is None else replace(block, heads=selector.num_slots)
