"""The options of a model's heads, from which every block is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from latentheads.attention.latent import LatentAttention
from latentheads.latents.logits.latent import Logits
from latentheads.latents.selector import Selector
from latentheads.model import HeadModel
from latentheads.models.network import Network
from latentheads.names import Block, check_attention_types

A = TypeVar("A", bound=LatentAttention)


@dataclass(frozen=True)
class HeadOptions:
    """What is latent about the heads of a model.

    Attributes:
        logits: The prior of the logits, and of outputs of n-gram heads.
        selector: Selects heads among candidates; None: all heads are active.
        has_latent_logits: Whether attention logits are latent; else attention blocks have no site.
    """

    logits: Logits
    selector: Selector | None = None
    has_latent_logits: bool = True

    @classmethod
    def of(cls, model: HeadModel) -> HeadOptions:
        """Those of a model whose first latents are made; without latent logits heads have no site.

        Raises:
            ValueError: The model has no blocks of an attention type whose logits are latent.
        """
        logits = model.find_latent(Logits)
        if logits is not None:
            check_attention_types("logits", logits.attention_types or (), model.attention_types)
        return cls(logits or Logits(), model.selector, logits is not None)

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
        family = self.logits.prior_of(block) if self.has_latent_logits else None
        return kind(block, network.width, family, network.attention_dropout, selector)


def with_selected_heads(block: Block, selector: Selector | None) -> Block:
    """The block with as many heads as its selector has slots."""
    return block if selector is None else replace(block, heads=selector.num_slots)
