"""Structured pruning of heads of a network of ``transformers``: it makes the matrices smaller.

:func:`latentheads.pruning.remove_heads` selects the heads; here their weights are removed. The
network's configuration records the remaining heads, ``kept_heads``, and :func:`from_pretrained`
loads a folder that ``save_pretrained`` wrote of such a network.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from latentheads.contrib.hf.addresses import HEAD_COUNTS, Address, find_heads
from latentheads.packages import import_optional
from latentheads.passes import evaluation_mode

KEPT = "kept_heads"
"""The attribute of a configuration with the original indices of the remaining heads, by block."""

FILE_OPTIONS = ("subfolder", "revision", "cache_dir", "token", "local_files_only", "force_download")
"""Options of loading that locate files, for configuration and weights."""

SEPARATE = (
    ("q_proj", "k_proj", "v_proj"),
    ("query", "key", "value"),
    ("q", "k", "v"),
    ("q_lin", "k_lin", "v_lin"),
)
"""Names of the projections in attention modules with separate queries, keys and values."""

WHOLE_WIDTH = ("embed_dim", "hidden_size", "d_model")
"""Attributes that the code of a module may use as the width of all heads; they are not changed."""

WIDTHS = ("all_head_size", "inner_dim", "split_size")
"""Attributes of a module that depend on the joint width of its heads."""

BIASES = ("use_relative_position_bias", "use_shared_relative_position_bias")
"""Names, in configurations, of a position bias for each head that lies outside the module."""


def check_prunable(address: Address, kept: Sequence[int]) -> None:
    """Raises an error if the heads of a module cannot be pruned so; changes nothing.

    Raises:
        ValueError: The layout of the module is unknown, its heads share parameters that cannot be
            pruned, or groups of heads that share a key would have several sizes.
    """
    module, heads, name = address.attention, address.block.heads, address.block.name
    prefix = f"block {name!r} ({type(module).__name__})"
    names_in_code = inspect.unwrap(type(module).forward).__code__.co_names  # decorated in most
    projections = _find_projections(module)
    if projections is None or any(width in names_in_code for width in WHOLE_WIDTH):
        raise ValueError(f"{prefix}: the layout of its weights is unknown, no head can be removed")
    size = _width_of(address.projection) // heads
    own_modules = (*projections, address.projection)
    own_parameters = {id(parameter) for part in own_modules for parameter in part.parameters()}
    for label, parameter in module.named_parameters():
        is_head_norm = label.count(".") == 1 and parameter.shape == (
            size,
        )  # the same for every head
        if id(parameter) not in own_parameters and not is_head_norm:
            raise ValueError(f"{prefix}: the use of {label} is unknown, no head can be removed")
    has_position_bias = any(getattr(module.config, bias, False) for bias in BIASES)
    if has_position_bias or hasattr(module, "has_relative_attention_bias"):
        raise ValueError(f"{prefix}: positions have a bias for each head, no head can be removed")
    _kept_groups(prefix, heads, _count_groups(module, heads), kept)


@torch.no_grad()
def prune_weights(address: Address, kept: Sequence[int]) -> None:
    """Removes the weights of all other heads; if none stays, one with output weights of 0."""
    module, heads = address.attention, address.block.heads
    groups, kept_heads = _count_groups(module, heads), list(kept) or [0]
    shared = _kept_groups("", heads, groups, kept_heads)
    rows = _rows_of_heads(kept_heads, _width_of(address.projection) // heads)
    projections = _find_projections(module)
    assert projections is not None
    if len(projections) == 3:
        for projection, num_heads, heads_of_part in zip(
            projections, (heads, groups, groups), (kept_heads, shared, shared), strict=True
        ):
            _keep_outputs(
                projection, _rows_of_heads(heads_of_part, _outputs_of(projection) // num_heads)
            )
    else:
        _prune_fused(projections, rows)
    columns = rows.to(weight_of(address.projection).device)
    _set_weight(address.projection, weight_of(address.projection).index_select(1, columns))
    if not kept:
        weight_of(address.projection).zero_()
    module.num_heads = len(kept_heads)  # type: ignore[assignment]  # Llama's leaves it to the configuration
    numbers = dict.fromkeys(HEAD_COUNTS, len(kept_heads)) | dict.fromkeys(WIDTHS, len(rows))
    numbers["num_key_value_heads"] = len(shared)  # which the code of StableLM uses
    numbers["num_key_value_groups"] = len(kept_heads) // len(shared)
    for name, number in numbers.items():
        if hasattr(module, name):
            setattr(module, name, number)


def record_kept_heads(config: Any, name: str, heads: int, kept: Sequence[int]) -> None:
    """Records in a configuration which of the original heads of a block remain."""
    kept_by_block = dict(getattr(config, KEPT, None) or {})
    previous = kept_by_block.get(name, list(range(heads)))
    kept_by_block[name] = [previous[head] for head in kept]
    setattr(config, KEPT, kept_by_block)


def from_pretrained(folder: str | Path, **options: Any) -> Any:
    """Loads a network with pruned heads that ``save_pretrained`` wrote.

    Args:
        folder: The folder; that of an unpruned network is loaded too.
        **options: Arguments of ``from_pretrained`` of ``transformers``, except ``config``, which is
            the folder's own, and ``output_loading_info``.

    Returns:
        The network, of its own class.

    Raises:
        ValueError: ``config`` or ``output_loading_info`` is given.
    """
    for name in ("config", "output_loading_info"):
        if name in options:
            raise ValueError(f"{name} cannot be given: the folder determines its network")
    transformers = import_optional("transformers")
    file_options = {name: value for name, value in options.items() if name in FILE_OPTIONS}
    config = transformers.AutoConfig.from_pretrained(folder, **file_options)
    network_class = getattr(transformers, config.architectures[0])

    class Smaller(network_class):  # type: ignore[misc, valid-type]
        """The network, pruned before its weights are loaded."""

        def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
            super().__init__(config, *args, **kwargs)
            kept = getattr(config, KEPT, None) or {}
            for address in find_heads(self) if kept else ():
                if address.block.name in kept:
                    prune_weights(address, kept[address.block.name])

    # transformers looks up the names of the weights by these two names
    Smaller.__name__, Smaller.__module__ = network_class.__name__, network_class.__module__
    network = Smaller.from_pretrained(folder, config=config, **options)
    network.__class__ = network_class
    return network


def _find_projections(module: nn.Module) -> tuple[nn.Module, ...] | None:
    """The projections of queries, keys and values; or GPT-2's fused one, with that of queries."""
    children = dict(module.named_children())
    for names in SEPARATE:
        if all(isinstance(children.get(name), nn.Linear) for name in names):
            return tuple(children[name] for name in names)
    if "c_attn" in children:  # of GPT-2
        return tuple(children[name] for name in ("c_attn", "q_attn") if name in children)
    return None


def _count_groups(module: nn.Module, heads: int) -> int:
    """Number of key groups; by default the number of heads."""
    return heads // int(getattr(module, "num_key_value_groups", 1))


def _kept_groups(prefix: str, heads: int, groups: int, kept: Sequence[int]) -> list[int]:
    """The key groups that remaining heads use; each must have equally many heads."""
    readers = [sum(head * groups // heads == group for head in kept) for group in range(groups)]
    if len(set(readers) - {0}) > 1:
        raise ValueError(
            f"{prefix}: heads share keys in groups of {heads // groups}, and as many of each group "
            "must stay, or none"
        )
    return [group for group, number in enumerate(readers) if number]


def _prune_fused(projections: Sequence[nn.Module], rows: Tensor) -> None:
    """Prunes a fused projection of queries, keys and values."""
    fused, *query_projection = projections
    parts = 3 - len(query_projection)
    width = _outputs_of(fused) // parts
    _keep_outputs(fused, torch.cat([rows + part * width for part in range(parts)]))
    for projection in query_projection:
        _keep_outputs(projection, rows)


def _rows_of_heads(heads: Sequence[int], size: int) -> Tensor:
    """The rows of some heads."""
    return (torch.tensor(list(heads))[:, None] * size + torch.arange(size)).flatten()


def weight_of(part: nn.Module) -> Tensor:
    """The weight, outputs by inputs; GPT-2's ``Conv1D`` stores the transpose.

    Raises:
        ValueError: It is not stored as it is used: it is quantised, or an adapter adds to it.
    """
    if not _is_stored_as_used(part):
        raise ValueError(
            f"the weight of {type(part).__name__} cannot be changed: load it without quantisation, "
            "and merge adapters"
        )
    weight = cast(nn.Parameter, part.weight)
    return weight if isinstance(part, nn.Linear) else weight.T


@torch.no_grad()
def effective_weight(part: nn.Module) -> Tensor:
    """What inputs are multiplied by; computed, and no parameter, where :func:`weight_of` fails."""
    if hasattr(part, "_hf_hook") and any(tensor.is_meta for tensor in part.parameters()):
        from accelerate.utils import align_module_device

        with align_module_device(part):
            return effective_weight(part)
    inputs: Any = getattr(part, "in_features", getattr(part, "nx", None))
    if inputs is None or _is_stored_as_used(part):
        return weight_of(part)
    stored = *part.parameters(), *part.buffers(), torch.empty(())
    dtype = next(tensor.dtype for tensor in stored if tensor.is_floating_point())
    identity = torch.eye(inputs, dtype=dtype, device=stored[0].device)
    with evaluation_mode(part):
        return (part.forward(identity) - part.forward(torch.zeros_like(identity[:1]))).T


def _is_stored_as_used(part: nn.Module) -> bool:
    # by type: a product in place does not change the weight of a subclass, or of a parametrization
    is_parameter = type(getattr(part, "weight", None)) is nn.Parameter
    return is_parameter and (isinstance(part, nn.Linear) or hasattr(part, "nf"))


def _outputs_of(part: nn.Module) -> int:
    return weight_of(part).shape[0]


def _width_of(part: nn.Module) -> int:
    return weight_of(part).shape[1]


def _keep_outputs(part: nn.Module, rows: Tensor) -> None:
    _set_weight(part, weight_of(part).index_select(0, rows.to(weight_of(part).device)))
    if isinstance(bias := getattr(part, "bias", None), Tensor):
        part.bias = nn.Parameter(bias[rows.to(bias.device)], bias.requires_grad)


def _set_weight(part: nn.Module, weight: Tensor) -> None:
    """Replaces the weight of a linear map, and sets its sizes."""
    requires_grad = next(part.parameters()).requires_grad
    outputs, inputs = weight.shape
    stored = weight if isinstance(part, nn.Linear) else weight.T.contiguous()
    part.weight = nn.Parameter(stored, requires_grad)
    sizes = {"out_features": outputs, "in_features": inputs, "nf": outputs, "nx": inputs}
    for name, size in sizes.items():
        if hasattr(part, name):
            setattr(part, name, size)
