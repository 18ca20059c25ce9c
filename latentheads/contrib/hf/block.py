"""A block of a network of ``transformers``, whose attention logits are sampled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from latentheads.attention.block import HeadBlock
from latentheads.contrib.hf.addresses import Address
from latentheads.contrib.hf.arguments import get_cache, is_readable
from latentheads.contrib.hf.removal import (
    check_prunable,
    effective_weight,
    prune_weights,
    record_kept_heads,
    weight_of,
)
from latentheads.distributions.heads import BlockStates, HeadContext
from latentheads.families.family import Family
from latentheads.families.location import Identity
from latentheads.families.normal import make_posterior
from latentheads.latents.network import Choice
from latentheads.latents.selector import Selector
from latentheads.layers.numeric import full_precision, softmax, weighted_sum
from latentheads.mask import PairMask, causal
from latentheads.names import side_of


@dataclass
class ForwardPass:
    """The state of one forward pass, shared by the blocks of a network.

    In a call of the network itself, such as a step of ``generate``, the heads of all positions are
    sampled, and no density is computed.

    Attributes:
        queries: By side, the positions whose heads carry a latent; None: all.
        choices: The selected heads of blocks that select; if missing, they are sampled.
        below: By attention type, the logits of the last latent block.
        masks: By attention type, the last attention mask, the shape of its scores, and the
            :class:`PairMask` that was made of it.
        states: By block, the input states of its module, until its heads are sampled.
        sentences: Their number; None in a call of the network itself.
    """

    queries: dict[str, Tensor | None] = field(default_factory=dict)
    choices: Mapping[str, Choice] = field(default_factory=dict)
    below: dict[str, Tensor] = field(default_factory=dict)
    masks: dict[str, tuple[Tensor | None, torch.Size, PairMask]] = field(default_factory=dict)
    states: dict[str, BlockStates] = field(default_factory=dict)
    sentences: int | None = None


class ForwardPassHolder:
    """Holds the current forward pass, for all blocks of a network."""

    def __init__(self) -> None:
        self.forward_pass = ForwardPass()

    def __getstate__(self) -> dict[str, Any]:
        """No pass: a copy has none of its tensors, which have a graph."""
        return {"forward_pass": ForwardPass()}


class PretrainedBlock(HeadBlock):
    """A block of a pre-trained network: its logits are sampled at ``<block>.logits``.

    It has no weights of its own: it uses those of the attention module.

    Args:
        address: The attention module.
        prior: The prior of the logits; None makes the block deterministic, without a site.
        selector: The gates of its heads, at ``<block>.selection``; None: no gates.
        holder: The forward pass that all blocks of the network share.
        last: Whether it is the last latent block of its attention type.
        config: The network's configuration.
    """

    latent = "logits"
    has_attention_weights = True

    def __init__(
        self,
        address: Address,
        prior: Family | None,
        selector: Selector | None,
        holder: ForwardPassHolder,
        last: bool,
        config: Any,
    ) -> None:
        super().__init__(address.block, selector)
        self.prior = prior
        self.last = last
        self._address, self._config = address, config  # its modules are not submodules
        self._holder = holder

    def make_posterior(self) -> Family:
        return make_posterior(Identity(), self.prior, self.block.heads)

    @property
    def called_module(self) -> nn.Module:
        """The attention module of the network; not a submodule."""
        return self._address.attention

    @property
    def projection(self) -> nn.Module:
        """What the network calls with the joined heads; not a submodule."""
        return self._address.joined

    @property
    def output_weight(self) -> Float[Tensor, "width joined"]:
        return effective_weight(self._address.projection)

    def scale_output(self, factors: Float[Tensor, " joined"]) -> None:
        weight_of(self._address.projection).mul_(factors)

    @property
    def size(self) -> int:
        return self.output_weight.shape[1] // self.block.heads

    @property
    def side(self) -> str:
        """Encoder or decoder."""
        return side_of(self.block.attention_type)

    def record_states(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A pre-hook: holds the input states of the module until its heads are sampled."""
        query = args[0] if args else kwargs.get("hidden_states")
        memory = kwargs.get("key_value_states", kwargs.get("encoder_hidden_states"))
        if memory is None and self.block.attention_type.endswith("self"):
            # with a cache the keys of earlier tokens belong to states of earlier calls
            memory = query if get_cache(kwargs) is None else None
        self._holder.forward_pass.states[self.block.name] = BlockStates(query, memory)

    def score(
        self,
        query: Float[Tensor, "batch head query size"],
        key: Float[Tensor, "batch group key size"],
        scaling: float | None,
        position_bias: Tensor | None,
        softcap: float | None,
    ) -> Float[Tensor, "batch head query key"]:
        """Computes the scores in float32 or wider; the heads of a group share its keys."""
        query = query * (query.shape[-1] ** -0.5 if scaling is None else scaling)
        scores = full_precision(_apply_grouped(torch.matmul, query, key.transpose(-1, -2)))
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        return scores if position_bias is None else scores + full_precision(position_bias)

    def attend(
        self,
        scores: Float[Tensor, "batch head query key"],
        value: Float[Tensor, "batch group key wide"],
        attention_mask: Shaped[Tensor, "*pairs"] | None,
        dropout: float,
    ) -> tuple[Float[Tensor, "batch query head wide"], Float[Tensor, "batch head query key"]]:
        """Samples the logits, and computes the weighted sum of the values.

        Returns:
            The outputs of the heads, multiplied by their gates, and the attention weights.
        """
        choice = self._get_choice(len(scores))
        if attention_mask is not None:
            if attention_mask.shape[-1] > scores.shape[-1]:
                attention_mask = attention_mask[..., : scores.shape[-1]]
            if attention_mask.dtype != torch.bool:
                # a finite bias of unmasked pairs belongs to the scores
                unmasked = is_readable(attention_mask)
                scores = scores + full_precision(attention_mask).masked_fill(~unmasked, 0.0)
        mask = self._get_mask(attention_mask, scores)
        logits = self._sample_logits(scores, mask)
        if self.hooks:
            values_of_heads = value.repeat_interleave(logits.shape[1] // value.shape[1], 1)
            self._call_hooks(logits, values_of_heads, mask, self._get_active_heads(logits, choice))
        weights = softmax(logits + mask.bias).to(value.dtype)

        def weigh(weights: Tensor, value: Tensor) -> Tensor:
            return weighted_sum(weights, value, dropout, training=True)

        heads = _apply_grouped(weigh, weights, value)
        if choice is not None:
            heads = heads * choice.weight[..., None, None].to(heads.dtype)
        return heads.transpose(1, 2).contiguous(), weights

    def _get_choice(self, rows: int) -> Choice | None:
        """The selected heads: those of the pass, or sampled in a call of the network itself."""
        choice = self._holder.forward_pass.choices.get(self.block.name)
        if choice is None:
            return self.choose(None, True) if self.selector else None
        if choice.common or len(choice.weight) == rows:
            return choice
        windows = rows // len(choice.weight)  # of each image, that has a row for each
        return choice.select(torch.arange(rows, device=choice.weight.device) // windows)

    def _get_mask(
        self, attention_mask: Shaped[Tensor, "*pairs"] | None, scores: Tensor
    ) -> PairMask:
        """The mask of the pairs; blocks of an attention type with the same mask share it."""
        forward_pass, shape = self._holder.forward_pass, scores.shape
        cached = forward_pass.masks.get(self.block.attention_type)
        # by identity: a network makes one mask for all layers, and comparing values would wait
        if cached is not None and cached[0] is attention_mask and cached[1] == shape:
            return cached[2]
        batch, _, queries, keys = shape
        readable = self._make_readable(attention_mask, scores).expand(batch, queries, keys)
        latent_queries = forward_pass.queries.get(self.side)
        if latent_queries is None:
            latent_queries = readable.new_ones(batch, queries)
        elif latent_queries.shape[-1] != queries:
            raise ValueError(
                f"block {self.block.name!r}: attention_mask has {latent_queries.shape[-1]} "
                f"positions, heads have {queries}: leave it out if it is of samples of sound"
            )
        mask = PairMask.build(readable, latent_queries, scores.dtype)
        forward_pass.masks[self.block.attention_type] = attention_mask, shape, mask
        return mask

    def _make_readable(
        self, attention_mask: Tensor | None, scores: Tensor
    ) -> Bool[Tensor, "#b query key"]:
        """True at the keys that each query may attend to, the same for all heads."""
        queries, keys = scores.shape[-2:]
        if attention_mask is None:
            is_self = self.block.attention_type.endswith("self")
            if is_self and getattr(self.called_module, "is_causal", False):
                return causal(keys, scores.device, keys - queries)[None]
            return torch.ones(1, queries, keys, dtype=torch.bool, device=scores.device)
        readable = is_readable(attention_mask)
        if attention_mask.shape[1] != 1 and (readable != readable[:, :1]).any():
            raise ValueError(f"block {self.block.name!r}: all heads must have one attention mask")
        return readable[:, 0]

    def _sample_logits(self, scores: Tensor, mask: PairMask) -> Tensor:
        """Samples the logits, and passes them to the block above."""
        forward_pass, attention_type = self._holder.forward_pass, self.block.attention_type
        below = None if self.block.is_lowest else forward_pass.below.get(attention_type)
        states = forward_pass.states.pop(self.block.name, None)
        if self.prior is None:
            return scores
        windows, others = divmod(len(scores), sentences := forward_pass.sentences or len(scores))
        if others or (forward_pass.sentences and states is None):  # of a part of the module's call
            raise ValueError(
                f"block {self.block.name!r} attends within images that are no rows of {sentences} "
                "sentences: name other blocks, as blocks='decoder-self'"
            )
        if windows > 1:
            # those of an image are its queries, with keys of their own
            scores, mask, states = _fold(scores, windows), _fold_mask(mask, windows), None
        logits = self._sample_heads(HeadContext(scores, below, mask, self.block, None, states))
        if logits.shape != scores.shape:
            raise ValueError(
                f"site {self.site!r}: a pre-trained network takes one sample at a time, got shape "
                f"{tuple(logits.shape)}: sample particles one after the other"
            )
        # those below are not needed any more: their memory is freed before the next block
        forward_pass.below.pop(attention_type, None)
        if not self.last:
            forward_pass.below[attention_type] = logits
        return logits if windows == 1 else _unfold(logits, windows)

    @property
    def address(self) -> Address:
        """The attention module, with the present number of heads."""
        return replace(self._address, block=self.block)

    def check_removal(self, computed: Sequence[int], active: Sequence[int]) -> None:
        """Raises an error if the block cannot be pruned so.

        Raises:
            ValueError: The logits of a removed head are still used, or the weights of the network
                cannot be pruned so.
        """
        if len(active) == self.block.heads:
            return
        if len(computed) > len(active):
            raise ValueError(
                f"block {self.block.name!r}: prior or guide uses the logits of removed heads, and "
                "a pre-trained network computes no head without an output"
            )
        check_prunable(self.address, active)

    def _prune_weights(self, computed: Sequence[int], active: Sequence[int]) -> None:
        if len(active) < self.block.heads:
            prune_weights(self.address, active)
            record_kept_heads(self._config, self.block.name, self.block.heads, active)


def _apply_grouped(
    function: Any,
    rows: Float[Tensor, "batch head row inner"],
    shared: Float[Tensor, "batch group inner column"],
) -> Float[Tensor, "batch head row column"]:
    """Applies a product to heads in groups that share a matrix, without copying it."""
    batch, heads, num_rows, inner = rows.shape
    groups = shared.shape[1]
    grouped_rows = rows.reshape(batch, groups, heads // groups * num_rows, inner)
    return function(grouped_rows, shared).view(batch, heads, num_rows, shared.shape[-1])


def _fold(
    pairs: Shaped[Tensor, "row any query key"], windows: int
) -> Shaped[Tensor, "sentence any queries key"]:
    """Puts the queries of the windows of an image, which are rows, one after the other."""
    return pairs.unflatten(0, (-1, windows)).transpose(1, 2).flatten(2, 3)


def _unfold(
    pairs: Shaped[Tensor, "sentence head queries key"], windows: int
) -> Shaped[Tensor, "row head query key"]:
    """The inverse of :func:`_fold`."""
    return pairs.unflatten(2, (windows, -1)).transpose(1, 2).flatten(0, 1)


def _fold_mask(mask: PairMask, windows: int) -> PairMask:
    latent = _fold(mask.latent[:, None], windows)[:, 0]
    return PairMask(_fold(mask.bias, windows), latent, latent.sum((-1, -2)))
