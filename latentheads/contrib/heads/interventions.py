"""Interventions: what stands in for a head of a network of ``transformers`` that is switched off.

=========================  ======================================================================
:class:`Zero`              Its output is 0.
:class:`Mean`              Its output is its mean over examples.
:class:`Counterfactual`    Its output is that of a paired prompt, such as one with other names.
:class:`Window`            It attends to the first and the last few tokens only.
=========================  ======================================================================

Studies that differ in the intervention find other circuits, so a result has to name it. Heads are
joined in the *input* of the output projection: there a hook replaces them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from latentheads.checks import check_instance, check_least
from latentheads.contrib.hf.addresses import Address, find_heads
from latentheads.contrib.hf.arguments import device_of_inputs, get_cache, is_readable, mask_name
from latentheads.handlers import PlugIn
from latentheads.names import side_of
from latentheads.passes import evaluation_mode, uncompiled

Gates = Shaped[Tensor, "*rows head"]
"""True, or 1, where a head is kept: of each row of a batch, or of all; fractions mix."""


class Intervention(ABC):
    """What stands in for heads that are switched off."""

    name: str

    def check_inputs(  # noqa: B027
        self, inputs: Mapping[str, Tensor], rows: int, blocks: Collection[str]
    ) -> None:
        """Raises a ValueError if it does not fit these arguments of the network.

        Args:
            inputs: The arguments.
            rows: Number of prompts.
            blocks: Names of the blocks whose heads are switched off.
        """

    @abstractmethod
    def attach(self, address: Address, gates: Gates) -> Callable[[], None]:
        """Switches heads of an attention module off, and returns a function that undoes it.

        Args:
            address: The attention module.
            gates: The heads that are kept.
        """


class Replaced(Intervention):
    """An intervention that puts another output in place of a head's."""

    @abstractmethod
    def replacement(self, address: Address, outputs: Tensor) -> Tensor:
        """What stands in for the heads of an attention module, or broadcasts to it.

        Args:
            address: The attention module.
            outputs: Their own outputs: row, query, head, width.
        """

    def attach(self, address: Address, gates: Gates) -> Callable[[], None]:
        """Replaces heads in the input of the output projection."""

        def replace(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
            joined, *others = args
            outputs = joined.unflatten(-1, (address.block.heads, -1))
            other = self.replacement(address, outputs).to(outputs)
            if gates.ndim > 1 and len(gates) not in (1, len(outputs)):
                raise ValueError(f"{self.name} is of {len(gates)} rows, got {len(outputs)}")
            kept = gates[..., None, :, None].to(outputs.device)  # the same at all queries
            if gates.dtype == torch.bool:  # not a product: 0 times infinity is no number
                return (torch.where(kept, outputs, other).flatten(-2), *others)
            return ((other + kept * (outputs - other)).flatten(-2), *others)

        return address.joined.register_forward_pre_hook(replace).remove


class Zero(Replaced):
    """The output of a head that is off is 0."""

    name = "zero"

    def replacement(self, address: Address, outputs: Tensor) -> Tensor:
        return outputs.new_zeros(())


class Mean(Replaced):
    """The output of a head that is off is its mean over examples.

    Args:
        network: The network.
        inputs: Its arguments: tokens, and ``attention_mask`` where there is padding.
        by_position: A mean for each position, for examples that are one template; it takes whole
            prompts, not the steps of a cache. False: one mean over all of them.

    Example:
        >>> mean = Mean(gpt2, {"input_ids": tokens})
        >>> with lh.heads(gpt2).off([(0, 1)], mean):
        ...     logits = gpt2(input_ids=tokens).logits
    """

    name = "mean"

    def __init__(
        self, network: Any, inputs: Mapping[str, Tensor], *, by_position: bool = False
    ) -> None:
        self.by_position = by_position
        self.means = {}
        outputs, is_pair = record_outputs(network, inputs), network.config.is_encoder_decoder
        has_encoder = is_pair or not any(side_of(name) == "decoder" for name in outputs)
        # an encoder that reads images for a decoder alone has no mask
        masks = {"encoder" if has_encoder else "decoder": inputs.get("attention_mask")}
        if is_pair:
            masks["decoder"] = inputs.get("decoder_attention_mask")
        for name, heads in outputs.items():
            heads = heads.reshape(-1, *heads.shape[-3:])  # patches of all images have no rows
            rows = _valid_rows(heads, masks.get(side_of(name)))
            self.means[name] = _mean(heads, rows, by_position)

    def replacement(self, address: Address, outputs: Tensor) -> Tensor:
        means, positions = self.means[address.block.name], outputs.shape[-3]
        if not self.by_position:
            return means
        if len(means) < positions:
            raise ValueError(f"by_position has means of {len(means)} positions, got {positions}")
        if len(means) > positions == 1:  # a step with a cache: its position is not known here
            raise ValueError(
                "by_position is of whole prompts, got a query alone: use_cache must be False"
            )
        return means[:positions]


class Counterfactual(Replaced):
    """The output of a head that is off is that of a paired input at the same position.

    Args:
        network: The network.
        inputs: Its arguments with the paired inputs, such as the same prompts with other names. Row
            i is paired with row i of the batch; if each row has gates of its own, with that of
            every copy of the batch.
    """

    name = "counterfactual"

    def __init__(self, network: Any, inputs: Mapping[str, Tensor]) -> None:
        self.outputs = record_outputs(network, inputs)
        self.lengths = {side: _count_tokens(inputs, side) for side in ("encoder", "decoder")}

    def check_inputs(
        self, inputs: Mapping[str, Tensor], rows: int, blocks: Collection[str]
    ) -> None:
        """Raises a ValueError unless each prompt has a paired one of as many tokens.

        Of an encoder-decoder they are those of the side on which heads are switched off.
        """
        paired = len(next(iter(self.outputs.values())))
        if paired != rows:
            raise ValueError(
                f"a counterfactual must have a row for each of {rows} prompts, got {paired}"
            )
        for side in sorted({side_of(block) for block in blocks}):
            lengths, paired_lengths = _count_tokens(inputs, side), self.lengths[side]
            if lengths is None or paired_lengths is None:
                continue
            for row, (own, other) in enumerate(zip(lengths, paired_lengths, strict=True)):
                if own != other:
                    raise ValueError(
                        f"prompt {row} has {own} tokens and its paired prompt {other}: a "
                        "counterfactual replaces outputs position by position"
                    )

    def attach(self, address: Address, gates: Gates) -> Callable[[], None]:
        """As of the class; rows of ``generate`` for one prompt are no copies of the batch."""
        rows = len(self.outputs[address.block.name])
        return super().attach(address, gates.expand(rows, -1) if gates.ndim == 1 else gates)

    def replacement(self, address: Address, outputs: Tensor) -> Tensor:
        paired = self.outputs[address.block.name]
        rows, positions = outputs.shape[0], outputs.shape[1:]
        if rows % len(paired) or paired.shape[1:] != positions:
            raise ValueError(
                f"a counterfactual has {len(paired)} rows of {paired.shape[1]} positions, got "
                f"{rows} of {positions[0]}"
            )
        return paired.repeat(rows // len(paired), *(1,) * len(positions))


class Window(Intervention):
    """A head that is off attends to the first ``sinks`` and to the last ``size`` tokens only.

    This separates streaming heads from retrieval heads (https://arxiv.org/abs/2410.10819). It is
    the same with a cache; attention must be eager or sdpa.

    Args:
        size: Number of last tokens, with the query's own.
        sinks: Number of first tokens that are no padding.
    """

    name = "window"

    def __init__(self, size: int, sinks: int = 1) -> None:
        check_least({"size": size, "sinks": sinks}, size=1, sinks=0)
        self.size, self.sinks = size, sinks

    def attach(self, address: Address, gates: Gates) -> Callable[[], None]:
        """Gives the attention module a mask for each head."""
        if address.block.attention_type != "decoder-self":
            raise ValueError(
                f"window is of decoder-self attention, got block {address.block.name!r}"
            )
        if gates.dtype != torch.bool:
            raise ValueError("window takes heads as a whole: gates must be True or False")
        starts = WeakKeyDictionary[Any, Tensor]()  # the first keys of rows, by their cache

        def narrow(
            _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> tuple[tuple[Any, ...], dict[str, Any]]:
            states = args[0] if args else kwargs["hidden_states"]
            cache, queries = get_cache(kwargs), states.shape[1]
            past, (keys, offset) = 0, (queries, 0)
            if cache is not None:
                past = cache.get_seq_length(address.block.layer)
                keys, offset = cache.get_mask_sizes(queries, address.block.layer)
            query = (torch.arange(queries, device=states.device) + past)[:, None]
            key = torch.arange(keys, device=states.device) + offset
            name = mask_name(kwargs)
            mask = kwargs.get(name)
            if mask is None:  # attention functions are causal by themselves where it is
                mask = (key <= query)[None, None]
            if not isinstance(mask, Tensor) or mask.ndim != 4:
                raise ValueError("window needs a mask of queries and keys: attention eager or sdpa")
            # not the first keys: padding may be on the left
            readable = is_readable(mask).any(-2, keepdim=True)
            nowhere = torch.iinfo(key.dtype).max
            first = torch.where(readable, key, nowhere).amin(-1, keepdim=True)
            if cache is not None:  # later queries of a sliding window do not read the first keys
                earlier = starts.get(cache) if past else None
                if earlier is not None and len(earlier) in (1, len(states)):
                    first = torch.minimum(first, earlier)
                starts[cache] = first
            is_sink = (key >= first) & (key - first < self.sinks)
            kept = gates[..., None, None].to(states.device)
            attended = (query - key < self.size) | is_sink | kept
            return args, {**kwargs, name: _hide(mask, attended)}

        return address.attention.register_forward_pre_hook(narrow, with_kwargs=True).remove


@contextmanager
def intervene(
    intervention: Intervention, addresses: Mapping[str, Address], gates: Mapping[str, Tensor]
) -> Iterator[None]:
    """Switches heads off within a ``with`` statement.

    Args:
        intervention: What stands in for them.
        addresses: The attention modules by the name of their block.
        gates: The heads that are kept, by block, as :data:`Gates`; other blocks keep all.
    """
    check_instance("intervention", intervention, Intervention, "an instance of Intervention")
    with ExitStack() as hooks:
        hooks.enter_context(uncompiled())
        for name, block_gates in gates.items():
            hooks.callback(intervention.attach(addresses[name], block_gates))
        yield


@torch.no_grad()
def record_outputs(
    network: Any, inputs: Mapping[str, Tensor]
) -> dict[str, Float[Tensor, "row query head w"]]:
    """Runs a network; returns the outputs of all heads before the output projection, by block."""
    check_instance("inputs", inputs, Mapping, "tensors by name, as prompts.inputs")
    outputs: dict[str, Tensor] = {}
    device = device_of_inputs(network)
    with ExitStack() as hooks:
        for address in find_heads(network):

            def keep(_: nn.Module, args: tuple[Any, ...], address: Address = address) -> None:
                outputs[address.block.name] = args[0].unflatten(-1, (address.block.heads, -1))

            hooks.callback(address.joined.register_forward_pre_hook(keep).remove)
        hooks.enter_context(evaluation_mode(network))
        hooks.enter_context(uncompiled())
        hooks.enter_context(PlugIn())  # latent heads without noise
        network(**{n: x.to(device) if isinstance(x, Tensor) else x for n, x in inputs.items()})
    return outputs


def _hide(mask: Tensor, attended: Bool[Tensor, "*rows head query key"]) -> Tensor:
    """A mask with fewer keys; attention functions take booleans, or numbers that are added."""
    if mask.dtype == torch.bool:
        return mask & attended
    return torch.where(attended, mask, torch.finfo(mask.dtype).min)


def _count_tokens(inputs: Mapping[str, Tensor], side: str) -> list[int] | None:
    """Tokens of each row that are no padding, on a side of a network; None: no mask has them."""
    has_target = side == "decoder" and "decoder_input_ids" in inputs
    mask = inputs.get("decoder_attention_mask" if has_target else "attention_mask")
    return None if mask is None else mask.flatten(1).count_nonzero(-1).tolist()


def _valid_rows(heads: Tensor, mask: Tensor | None) -> Tensor:
    """True at the queries of examples that are no padding."""
    if mask is None:
        return torch.ones(heads.shape[:2], dtype=torch.bool, device=heads.device)
    if mask.shape != heads.shape[:2]:
        raise ValueError(
            f"attention_mask has shape {list(mask.shape)}, heads have {list(heads.shape[:2])}: "
            "leave out one of pairs or of samples of sound; give inputs of one length"
        )
    return mask.to(heads.device).bool()


def _mean(heads: Tensor, is_valid: Tensor, by_position: bool) -> Tensor:
    """The mean over examples, and over their positions unless each has its own."""
    dims = (0,) if by_position else (0, 1)
    # a sum over many positions is beyond the numbers of half precision
    total = torch.where(is_valid[..., None, None], heads, 0).sum(dims, dtype=torch.float64)
    counts = is_valid.sum(dims).clamp_min(1)
    return (total / counts[..., None, None]).to(heads)
