"""The attention modules of a network, with the attention type and layer of each."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from latentheads.checks import split_items
from latentheads.errors import shown
from latentheads.names import ATTENTION_TYPES, Block

NAME = "latentheads"
"""The name of latent attention in a configuration of ``transformers``."""

HEAD_COUNTS = ("num_heads", "num_attention_heads", "n_heads", "n_head")
"""Names of the number of heads in modules and configurations."""

OUTPUTS = (
    *("o_proj", "out_proj", "c_proj", "o", "out_lin"),
    *("dense", "wo", "Wo", "proj", "projection"),
)
"""Names of the output projection in attention modules."""

NORMS = ("attn_sub_norm", "inner_attn_ln")
"""Names of a norm of all heads together before that, in BitNet and Kosmos-2."""

LOOPS = ("num_hidden_groups", "n_recurrent_loops", "loop_num_passes", "H_cycles")
"""Names, in configurations, of how often layers run: of ALBERT, Dory, Inkling 2, HRM."""

LAYER = re.compile(r"(?:^|\.)(\d+)(?=\.|$)")
"""Numbers in the path of a module, of which the first is that of its layer."""

CROSS = re.compile("cross|encoder_attn|encdec", re.IGNORECASE)


@dataclass(frozen=True)
class Address:
    """An attention module of a network.

    Attributes:
        block: Its attention type, its layer and the number of its heads.
        attention: The module that calls the attention function.
        projection: The output projection.
        joined: What is called with the outputs of all heads side by side: the output projection, or
            a norm before it.
        path: The name of the attention module in the network.
    """

    block: Block
    attention: nn.Module
    projection: nn.Module
    joined: nn.Module
    path: str


def find_heads(network: Any) -> list[Address]:
    """Finds the attention modules of a network, in its own order.

    Raises:
        ValueError: It is no ``PreTrainedModel``, none uses ``AttentionInterface``, or two have the
            same name.
    """
    network_name = type(network).__name__
    if not hasattr(network, "config"):
        raise ValueError(f"network must be a PreTrainedModel of transformers, got {network_name}")
    configs = [getattr(module, "config", None) for module in network.modules()]
    # a site cannot be sampled twice
    if any(hasattr(config, name) for config in configs for name in LOOPS):
        raise ValueError(
            f"{network_name} shares one attention module between layers: no site is one layer"
        )
    attention_modules = [
        (path, module)
        for path, module in network.named_modules()
        if _uses_attention_interface(module)
    ]
    if not attention_modules or not network._can_set_attn_implementation():
        raise ValueError(
            f"{network_name} does not let its attention be chosen by name (AttentionInterface of "
            "transformers): its heads cannot be made latent"
        )
    if network.config.model_type == "diffllama":
        raise ValueError(f"{network_name} joins heads in pairs: no part of their output is a head")
    has_encoder = network.config.is_encoder_decoder
    encoder = set(network.get_encoder().modules()) if has_encoder else set()
    addresses: dict[str, Address] = {}
    for path, module in attention_modules:
        address = _address_of(path, module, network, encoder)
        if address.block.attention_type == "decoder-cross" and _has_no_source(network.config):
            continue
        while (first := addresses.get(address.block.name)) is not None:
            if LAYER.sub("", first.path) != LAYER.sub("", path):
                raise ValueError(
                    f"{network_name} has two blocks {shown(address.block.name)}, {first.path} and "
                    f"{path}: make one of its parts latent"
                )
            # the layers of Swin's stages are counted on
            block = replace(address.block, layer=address.block.layer + 1)
            address = replace(address, block=block)
        addresses[address.block.name] = address
    return list(addresses.values())


def inner_network(network: Any) -> Any:
    """The network of ``transformers`` within a latent one; any other is returned as it is."""
    inner = getattr(network, "network", None)
    return inner if isinstance(inner, nn.Module) else network


def attention_of_parts(network: nn.Module) -> dict[Any, str]:
    """The names of the attention functions of a network, and then of each of its parts."""
    parts: list[Any] = [x for x in network.modules() if hasattr(x, "set_attn_implementation")]
    return {part: str(part.config._attn_implementation) for part in parts}


def parse_blocks(blocks: str, addresses: Collection[Block]) -> list[Block]:
    """Parses a choice of blocks: all, layers such as 3 or 3-5, attention types, or block names.

    Returns:
        The chosen blocks, each with the first chosen layer of its attention type.
    """
    chosen: set[str] = set()
    for item in split_items(blocks):
        named = {block.name for block in addresses if matches_block(item, block)}
        if not named:
            available = ", ".join(block.name for block in addresses)
            raise ValueError(
                f"blocks {shown(item)} names no block: give all, layers such as 3 or 3-5, "
                f"attention types ({', '.join(ATTENTION_TYPES)}), or some of {available}"
            )
        chosen |= named
    chosen_blocks = [block for block in addresses if block.name in chosen]
    first_layers = {
        b.attention_type: min(
            other.layer for other in chosen_blocks if other.attention_type == b.attention_type
        )
        for b in chosen_blocks
    }
    return [
        replace(block, first_layer=first_layers[block.attention_type]) for block in chosen_blocks
    ]


def matches_block(item: str, block: Block) -> bool:
    """Whether an item of a choice of blocks, such as 3-5 or decoder-cross, means a block."""
    layers = re.fullmatch(r"(\d+)(?:-(\d+))?", item)
    if layers is None:
        return item in ("all", block.attention_type, block.name)
    first, last = layers.groups()
    return int(first) <= block.layer <= int(last or first)


def _uses_attention_interface(module: nn.Module) -> bool:
    """Whether a module takes its attention function from ``AttentionInterface``."""
    code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
    return code is not None and "get_interface" in code.co_names


def _address_of(path: str, module: nn.Module, network: Any, encoder: set[nn.Module]) -> Address:
    is_cross = getattr(module, "is_cross_attention", False) or CROSS.search(path) is not None
    if network.config.is_encoder_decoder:
        side = "encoder" if module in encoder else "decoder"
    else:
        side = "decoder" if is_cross or _is_of_decoder(module) else "encoder"
    layer = LAYER.search(path)
    attention_type = f"{side}-{'cross' if is_cross else 'self'}"
    block = Block(attention_type, int(layer.group(1)) if layer else 0, _count_heads(module))
    projection = next(_find_outputs(path, module, network), None)
    if projection is None:
        raise ValueError(
            f"{type(network).__name__}: no output projection is known of {path} "
            f"({type(module).__name__})"
        )
    children = dict(module.named_children())
    joined = next((children[name] for name in NORMS if name in children), projection)
    return Address(block, module, projection, joined, path)


def _is_of_decoder(module: nn.Module) -> bool:
    """Whether self-attention outside of an encoder-decoder is to earlier positions alone."""
    if getattr(module, "is_decoder", False):  # is_causal of BigBird-Pegasus is False
        return True
    if hasattr(module, "is_causal"):
        return bool(module.is_causal)
    return not {"cache", "past_key_values"}.isdisjoint(inspect.signature(module.forward).parameters)


def _has_no_source(config: Any) -> bool:
    """Whether a network is a decoder that was taken out of an encoder-decoder, such as BART's."""
    is_alone = getattr(config, "is_decoder", False) and not config.is_encoder_decoder
    return is_alone and not getattr(config, "add_cross_attention", False)


def _count_heads(module: Any) -> int:
    for holder in (module, module.config):
        for name in HEAD_COUNTS:
            if isinstance(number := getattr(holder, name, None), int):
                return number
    raise ValueError(f"{type(module).__name__} does not say how many heads it has")


def _find_outputs(path: str, module: nn.Module, network: nn.Module) -> Iterator[nn.Module]:
    """Finds the output projection: a child of the module or, as in BERT, of its sibling."""
    children = dict(module.named_children())
    yield from (children[name] for name in OUTPUTS if name in children)
    sibling = getattr(network.get_submodule(path.rpartition(".")[0]), "output", None)
    dense = getattr(sibling, "dense", None)
    if isinstance(dense, nn.Module):
        yield dense
