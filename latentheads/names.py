"""Names: which block a latent belongs to, and what its sites are called."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from latentheads.checks import check_known, split_items

__all__ = [
    "ALIGNMENT",
    "ATTENTION_TYPES",
    "POINTING",
    "SELECTION",
    "SENTENCES",
    "TARGET",
    "Block",
    "attention_type_of",
    "block_of",
    "latent_of",
    "layer_of",
    "parse_attention_types",
    "side_of",
]

SENTENCES = "sentences"
TARGET = "target"
ATTENTION_TYPES = ("encoder-self", "decoder-self", "decoder-cross")
ALIGNMENT = "decoder-alignment"
"""The chain of the alignment blocks above a decoder."""
POINTING = "choice"
"""The name of the draw of their heads: the position that each points at."""
SELECTION = "selection"
"""The name of the draw of which heads of a block speak."""


def block_of(site: str) -> str:
    """``encoder.2.self.logits`` is a site of ``encoder.2.self``; so is that itself."""
    return ".".join(site.split(".")[:3])


def attention_type_of(site: str) -> str:
    """``encoder.2.self.logits`` belongs to ``encoder-self``."""
    stack, _, kind, *_ = site.split(".")
    return f"{stack}-{kind}"


def latent_of(site: str) -> str:
    """``encoder.2.self.logits`` is of ``logits``."""
    return site.rpartition(".")[2]


def layer_of(site: str) -> int:
    """``encoder.2.self.logits`` lies in layer 2."""
    return int(site.split(".")[1])


def side_of(name: str) -> str:
    """The chain ``encoder-self`` and the site ``encoder.2.self.logits`` are of the ``encoder``."""
    return "encoder" if name.startswith("encoder") else "decoder"


def parse_attention_types(text: str) -> tuple[str, ...] | None:
    """The chains that a word names: all (None), none, or some with commas between."""
    if text == "all":
        return None
    chains = () if text == "none" else tuple(split_items(text))
    for chain in chains:
        check_known("chain", chain, ATTENTION_TYPES, more=", or all, or none")
    return chains


def check_attention_types(
    name: str, given: Collection[str], known: Collection[str] = ATTENTION_TYPES
) -> None:
    """Refuses what is no list of chains; a text would be read letter by letter.

    Args:
        name: What it is called, for the error.
        given: The chains.
        known: Those that there are.

    Raises:
        ValueError: It is a text, or one is no chain.
    """
    if isinstance(given, str):
        raise ValueError(f"{name} must be a list of chains, got one text: [{given!r}]")
    for chain in given:
        check_known("chain", chain, known)


@dataclass(frozen=True, slots=True)
class Block:
    """The address of one module whose heads stand side by side.

    Args:
        chain: One of ``ATTENTION_TYPES``; a cascade runs along a chain, bottom to top.
        layer: Layer of the stack, from 0.
        heads: Number of heads H of the block.
        begins: The layer of the chain's first block; layers without heads may lie below it.

    Example:
        >>> lh.Block("encoder-self", layer=2, heads=4).site()
        'encoder.2.self.logits'
    """

    chain: str
    layer: int
    heads: int
    begins: int = 0

    @property
    def name(self) -> str:
        """For example ``encoder.2.self``."""
        stack, kind = self.chain.split("-")
        return f"{stack}.{self.layer}.{kind}"

    @property
    def key(self) -> str:
        """The name as a key of a ``torch.nn.ModuleDict``, which allows no dots."""
        return self.name.replace(".", "_")

    @property
    def first(self) -> bool:
        """Whether nothing lies below this block in its chain."""
        return self.layer == self.begins

    def site(self, latent: str = "logits") -> str:
        """Name of the block's sample site, for example ``encoder.2.self.logits``."""
        return f"{self.name}.{latent}"
