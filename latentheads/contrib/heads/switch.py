"""Heads of a network of ``transformers`` that are switched off, or scaled, for some calls.

``head_mask`` is gone from ``transformers`` 5, and zeros in a slice of ``o_proj.output`` are no
head: heads are joined in the *input* of the output projection, or of a norm before it. There a hook
multiplies the slice of each head; :func:`heads` puts it there and takes it away again.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from latentheads.checks import check_choice, check_instance, split_items
from latentheads.contrib.heads.interventions import Intervention, Zero, intervene
from latentheads.contrib.hf.addresses import find_heads, inner_network, matches_block
from latentheads.errors import shown
from latentheads.names import ATTENTION_TYPES, Block
from latentheads.passes import uncompiled

HeadName = tuple[int | str, int] | str
"""A head by name: ``(9, 6)``, ``"L9H6"``, ``("decoder.9.self", 6)``; or blocks, for all heads."""

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

    def off(
        self, heads: Iterable[HeadName] | HeadName, intervention: Intervention | None = None
    ) -> Any:
        """Switches heads off within a ``with`` statement: by default their output is 0.

        Args:
            heads: The heads, or one: ``(9, 6)`` and ``"L9H6"`` are head 6 of layer 9, both from 0;
                ``("decoder.9.cross", 6)`` names its block. A choice of blocks, such as
                ``"decoder.9.cross"``, ``"decoder-cross"`` or ``"3-5"``, is all of their heads. A
                text has commas between its items.
            intervention: What stands in for them; None: :class:`.Zero`.

        Example:
            >>> with lh.heads(gpt2).off([(0, 1), "L1H0"]):
            ...     logits = gpt2(input_ids=tokens).logits
        """
        gates: dict[str, Tensor] = {}
        for name, index in self.find_all(heads):
            if name not in gates:
                gates[name] = torch.ones(self.addresses[name].block.heads, dtype=torch.bool)
            gates[name][index] = False
        return intervene(Zero() if intervention is None else intervention, self.addresses, gates)

    @contextmanager
    def scale(self, factors: Mapping[HeadName, float | Tensor]) -> Iterator[None]:
        """Multiplies the outputs of heads within a ``with`` statement; contexts multiply.

        Args:
            factors: The factor of each head that is named; a tensor may need a gradient.
        """
        check_instance("factors", factors, Mapping, "a factor of each head, as {(9, 6): 0.5}")
        self.find_all(list(factors))  # none is named twice
        by_block: dict[str, dict[int, float | Tensor]] = defaultdict(dict)
        for head, factor in factors.items():
            for name, index in self.find_all([head]):
                by_block[name][index] = factor
        with ExitStack() as hooks:
            hooks.enter_context(uncompiled())
            for name, block_factors in by_block.items():
                address = self.addresses[name]
                hook = partial(_scale_heads, address.block.heads, block_factors)
                hooks.callback(address.joined.register_forward_pre_hook(hook).remove)
            yield

    def find_all(self, heads: Iterable[HeadName] | HeadName) -> list[tuple[str, int]]:
        """The blocks and indices of heads, as :meth:`off` takes them; those of lower layers first.

        Raises:
            ValueError: There is no such head, or one is named twice.
        """
        chosen: list[tuple[str, int]] = []
        for head in _list_heads(heads):
            of_blocks = [
                (name, index)
                for name, address in self.addresses.items()
                if isinstance(head, str) and self._is_meant(head, address.block)
                for index in range(address.block.heads)
            ]
            chosen += of_blocks or [self.find(head)]
        for head in chosen:
            if chosen.count(head) > 1:
                raise ValueError(f"head {head} is named twice")
        order = [*self.addresses]
        return sorted(chosen, key=lambda head: (order.index(head[0]), head[1]))

    def _is_meant(self, choice: str, block: Block) -> bool:
        """Whether a choice of blocks means a block; a layer's number is that of one type."""
        is_of_type = self.attention_type in (None, block.attention_type)
        is_named = choice in (block.name, block.attention_type)
        return matches_block(choice, block) and (is_of_type or is_named)

    def find(self, head: HeadName) -> tuple[str, int]:
        """The name of a head's block, and its index.

        Raises:
            ValueError: There is no such head, or a layer has heads of several attention types.
        """
        layer, index = self._parse(head)
        name = self._name_block(layer, head) if isinstance(layer, int) else layer
        if name not in self.addresses:
            raise ValueError(
                f"head {shown(head)}: there is no such block in {', '.join(self.addresses)}"
            )
        number = self.addresses[name].block.heads
        if not 0 <= index < number:
            raise ValueError(f"head {shown(head)}: {name} has heads 0 to {number - 1}")
        return name, index

    def _parse(self, head: Any) -> tuple[int | str, int]:
        """A head's layer, or the name of its block, and its index."""
        if isinstance(head, str) and (label := LABEL.fullmatch(head)):
            return int(label[1]), int(label[2])
        if isinstance(head, tuple) and len(head) == 2:
            layer, index = head
            if type(index) is int and (type(layer) is int or isinstance(layer, str)):
                return layer, index
        raise ValueError(
            "a head is (9, 6), 'L9H6' or ('decoder.9.self', 6), or a choice of blocks such as "
            f"'3-5', of {', '.join(self.addresses)}; got {shown(head)}"
        )

    def _name_block(self, layer: int, head: HeadName) -> str:
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


def _list_heads(heads: Any) -> list[HeadName]:
    """The heads of a list, of a text with commas between them, or one alone."""
    if isinstance(heads, str):
        return [*split_items(heads)]
    is_one = isinstance(heads, tuple) and len(heads) == 2 and type(heads[1]) is int
    return [heads] if is_one else list(heads)


def _scale_heads(
    heads: int, factors: Mapping[int, float | Tensor], _: nn.Module, args: tuple[Any, ...]
) -> tuple[Any, ...]:
    """A pre-hook of an output projection: multiplies the slices of some heads in its input."""
    joined, *others = args
    outputs = list(joined.split(joined.shape[-1] // heads, -1))
    for head, factor in factors.items():
        if not isinstance(factor, Tensor):  # one is saved, and missed by gradient checkpointing
            factor = torch.tensor(factor, dtype=torch.float64)
        outputs[head] = (outputs[head] * factor).to(joined.dtype)
    return (torch.cat(outputs, -1), *others)
