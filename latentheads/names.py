"""Names of blocks and of their sample sites."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator

from latentheads.checks import check_choice, check_list, split_items

SENTENCES = "sentences"
TARGET = "target"
ATTENTION_TYPES = ("encoder-self", "decoder-self", "decoder-cross")
ALIGNMENT = "decoder-alignment"
"""The attention type of the alignment blocks above a decoder."""
ALIGNED_POSITION = "choice"
"""The latent of alignment blocks: the position that each head points at."""
SELECTION = "selection"
"""The latent of blocks that select their heads: which of them are active."""


def block_of(site: str) -> str:
    """``encoder.2.self.logits`` is a site of the block ``encoder.2.self``."""
    return ".".join(site.split(".")[:3])


def attention_type_of(site: str) -> str:
    """``encoder.2.self.logits`` has the attention type ``encoder-self``."""
    stack, _, kind, *_ = site.split(".")
    return f"{stack}-{kind}"


def latent_of(site: str) -> str:
    """``encoder.2.self.logits`` has the latent ``logits``."""
    return site.rpartition(".")[2]


def layer_of(site: str) -> int:
    """``encoder.2.self.logits`` lies in layer 2."""
    return int(site.split(".")[1])


def side_of(name: str) -> str:
    """Both ``encoder-self`` and ``encoder.2.self.logits`` belong to the ``encoder``."""
    return "encoder" if name.startswith("encoder") else "decoder"


def parse_attention_types(text: str) -> tuple[str, ...] | None:
    """Parse attention types: all (None), none, or a comma-separated list."""
    if text == "all":
        return None
    attention_types = () if text == "none" else tuple(split_items(text))
    for attention_type in attention_types:
        check_choice("attention type", attention_type, ATTENTION_TYPES, more=", or all, or none")
    return attention_types


def _check_attention_types(text: str) -> str:
    parse_attention_types(text)
    return text


AttentionTypes = Annotated[str, AfterValidator(_check_attention_types)]
"""An option that names attention types, as :func:`parse_attention_types` reads it."""


def check_attention_types(
    name: str, attention_types: Collection[str], choices: Collection[str] = ATTENTION_TYPES
) -> None:
    """Check a list of attention types."""
    check_list(name, attention_types)
    for attention_type in attention_types:
        check_choice("attention type", attention_type, choices)


@dataclass(frozen=True, slots=True)
class Block:
    """The address of one attention block.

    Args:
        attention_type: One of ``ATTENTION_TYPES``; a cascade runs through the blocks of one type,
            from the bottom up.
        layer: Layer of the stack, from 0.
        heads: Number of heads H of the block.
        first_layer: The layer of the lowest block of this type; layers below it have none.

    Example:
        >>> lh.models.Block("encoder-self", layer=2, heads=4).site()
        'encoder.2.self.logits'
    """

    attention_type: str
    layer: int
    heads: int
    first_layer: int = 0

    @property
    def name(self) -> str:
        """The name, for example ``encoder.2.self``."""
        stack, kind = self.attention_type.split("-")
        return f"{stack}.{self.layer}.{kind}"

    @property
    def key(self) -> str:
        """The name as a key of a ``torch.nn.ModuleDict``, which allows no dots."""
        return self.name.replace(".", "_")

    @property
    def is_lowest(self) -> bool:
        """Whether this is the lowest block of its attention type."""
        return self.layer == self.first_layer

    def site(self, latent: str = "logits") -> str:
        """Name of the block's sample site, for example ``encoder.2.self.logits``."""
        return f"{self.name}.{latent}"
