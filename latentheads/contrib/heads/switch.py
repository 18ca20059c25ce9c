"""Heads of a network of ``transformers`` that are switched off, or scaled, for some calls.

``head_mask`` is gone from ``transformers`` 5, and zeros in a slice of ``o_proj.output`` are no
head: heads are joined in the *input* of the output projection. There a hook multiplies the slice
of each head; :func:`heads` puts it there and takes it away again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from latentheads.checks import check_choice, split_items
from latentheads.contrib.heads.interventions import Intervention, intervene
from latentheads.contrib.hf.addresses import find_heads, inner_network
from latentheads.errors import shown
from latentheads.names import ATTENTION_TYPES

Head = tuple[int | str, int] | str
"""A head: ``(9, 6)``, ``"L9H6"`` or ``("decoder.9.self", 6)``."""

LABEL = re.compile(r"L(\d+)H(\d+)", re.IGNORECASE)


class NetworkHeads:
    """The attention heads of a network, to switch off or to scale.

    Args:
        network: A ``PreTrainedModel``, or what :func:`latentheads.latent` makes of one.
        attention_type: The attention type that a layer's number stands for: encoder-self,
            decoder-self or decoder-cross. None: the network's only one.

    Attributes:
        addresses: The attention modules by the name of their block, such as ``decoder.9.self``.
    """

    def __init__(self, network: Any, attention_type: str | None = None) -> None:
        addresses = find_heads(inner_network(network))
        self.addresses = {address.block.name: address for address in addresses}
        types = {address.block.attention_type for address in self.addresses.values()}
        self.attention_types = [name for name in ATTENTION_TYPES if name in types]
        if attention_type is not None:
            check_choice("attention_type", attention_type, self.attention_types)
        self.attention_type = attention_type

    def __repr__(self) -> str:
        blocks = (address.block for address in self.addresses.values())
        return f"NetworkHeads({', '.join(f'{block.name}: {block.heads}' for block in blocks)})"

    def off(self, heads: Iterable[Head] | Head, intervention: Intervention | None = None) -> Any:
        """Switches heads off within a ``with`` statement: by default their output is 0.

        Args:
            heads: The heads, or one: ``(9, 6)`` and ``"L9H6"`` are head 6 of layer 9, both from 0;
                ``("decoder.9.cross", 6)`` names its block. A text has commas between them.
            intervention: What stands in for them; None: :class:`.Zero`.

        Example:
            >>> with lh.heads(gpt2).off([(0, 1), "L1H0"]):
            ...     logits = gpt2(input_ids=tokens).logits
        """
        listed = list_heads(heads)
        by_block = self._group(listed)
        if intervention is None:
            return self.scale(dict.fromkeys(listed, 0.0))
        gates: dict[str, Tensor] = {}
        for name, indices in by_block.items():
            projection: Any = self.addresses[name].projection
            kept = torch.ones(self.addresses[name].block.heads, dtype=torch.bool)
            kept[list(indices)] = False
            gates[name] = kept.to(projection.weight.device)
        return intervene(intervention, self.addresses, gates)

    @contextmanager
    def scale(self, factors: Mapping[Head, float | Tensor]) -> Iterator[None]:
        """Multiplies the outputs of heads within a ``with`` statement; contexts multiply.

        Args:
            factors: The factor of each head that is named; a tensor may need a gradient.
        """
        with ExitStack() as hooks:
            for name, heads in self._group(factors).items():
                projection = self.addresses[name].projection
                block_factors = {index: factors[head] for index, head in heads.items()}
                hook = partial(_scale_heads, self.addresses[name].block.heads, block_factors)
                hooks.callback(projection.register_forward_pre_hook(hook).remove)
            yield

    def _group(self, heads: Iterable[Head]) -> dict[str, dict[int, Head]]:
        """Heads by the name of their block and their index."""
        by_block: dict[str, dict[int, Head]] = {}
        for head in heads:
            name, index = self.find(head)
            if index in by_block.setdefault(name, {}):
                raise ValueError(f"head {shown(head)} is named twice")
            by_block[name][index] = head
        return by_block

    def find(self, head: Head) -> tuple[str, int]:
        """The name of a head's block, and its index.

        Raises:
            ValueError: There is no such head, or a layer has heads of several attention types.
        """
        place, index = _parse(head)
        name = self._name_block(place, head) if isinstance(place, int) else place
        if name not in self.addresses:
            raise ValueError(
                f"head {shown(head)}: there is no such block in {', '.join(self.addresses)}"
            )
        number = self.addresses[name].block.heads
        if not 0 <= index < number:
            raise ValueError(f"head {shown(head)}: {name} has heads 0 to {number - 1}")
        return name, index

    def _name_block(self, layer: int, head: Head) -> str:
        types = [self.attention_type] if self.attention_type else self.attention_types
        blocks = (address.block for address in self.addresses.values())
        layers = sorted({block.layer for block in blocks if block.attention_type in types})
        if layer not in layers:
            raise ValueError(
                f"head {shown(head)}: there is no layer {layer} of {', '.join(types)}, which has "
                f"layers {layers[0]} to {layers[-1]}"
            )
        if len(types) > 1:
            raise ValueError(
                f"head {shown(head)}: a layer has heads of {', '.join(types)}; say which, as in "
                f"lh.heads(network, {types[-1]!r}), or name the block"
            )
        stack, kind = types[0].split("-")
        return f"{stack}.{layer}.{kind}"


def heads(network: Any, attention_type: str | None = None) -> NetworkHeads:
    """The attention heads of a network of ``transformers``, to switch off or to scale.

    Args:
        network: A ``PreTrainedModel``, or what :func:`latentheads.latent` makes of one.
        attention_type: The attention type that a layer's number stands for, such as decoder-cross;
            None: the network's only one.

    Raises:
        ValueError: Its attention modules are unknown, or it has no such attention type.
    """
    return NetworkHeads(network, attention_type)


def label_head(layer: int, head: int) -> str:
    """The label of a head, as papers write it.

    Example:
        >>> label_head(9, 6)
        'L9H6'
    """
    return f"L{layer}H{head}"


def list_heads(heads: Any) -> list[Head]:
    """The heads of a list, of a text with commas between them, or one alone."""
    if isinstance(heads, str):
        return [*split_items(heads)]
    is_one = isinstance(heads, tuple) and len(heads) == 2 and type(heads[1]) is int
    return [heads] if is_one else list(heads)


def _parse(head: Any) -> tuple[int | str, int]:
    """The layer or the block of a head, and its index."""
    if isinstance(head, str) and (match := LABEL.fullmatch(head)):
        return int(match[1]), int(match[2])
    if isinstance(head, tuple) and len(head) == 2:
        place, index = head
        if type(index) is int and (type(place) is int or isinstance(place, str)):
            return place, index
    raise ValueError(f"a head is (9, 6), 'L9H6' or ('decoder.9.self', 6), got {shown(head)}")


def _scale_heads(
    heads: int, factors: Mapping[int, float | Tensor], _: nn.Module, args: tuple[Any, ...]
) -> tuple[Any, ...]:
    """A pre-hook of an output projection: multiplies the slices of some heads in its input."""
    joined, *others = args
    outputs = list(joined.split(joined.shape[-1] // heads, -1))
    for head, factor in factors.items():
        # 0 times infinity is no number: what is off is 0, whatever it was
        is_off = isinstance(factor, int | float) and factor == 0
        outputs[head] = torch.zeros_like(outputs[head]) if is_off else outputs[head] * factor
    return (torch.cat(outputs, -1), *others)
