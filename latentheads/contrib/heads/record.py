"""Records the logits, weights and outputs of all heads in any forward pass of a model.

Hooks are registered only while a recording is open; otherwise nothing is stored or computed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from latentheads.attention.block import HeadBlock
from latentheads.batch import Batch
from latentheads.checks import check_list
from latentheads.corpora.batches import iterate_batches
from latentheads.corpora.part import Part
from latentheads.errors import shown
from latentheads.frames import in_one_line
from latentheads.guide import ModelGuide, check_pair
from latentheads.handlers import PlugIn, SharedSamples, blocked_from_tracers
from latentheads.inference.bound import traces
from latentheads.inference.evaluation import eval_no_grad
from latentheads.latents.latent import check_model
from latentheads.model import HeadModel
from latentheads.names import Block, block_of
from latentheads.noise import fixed_noise


@dataclass(frozen=True)
class Heads:
    """The heads of a block in one forward pass.

    Attributes:
        block: The block.
        joined: The concatenated outputs of all heads, the input of the output projection: weights
            times values, or the output of an n-gram, times the gate if there is one; with dropout
            in training mode.
        logits_and_bias: The logits and the attention bias of an attention block; None for n-grams.
        active_mask: True at active heads; None if all are active.
    """

    block: Block
    joined: Float[Tensor, "*batch query width"]
    logits_and_bias: tuple[Tensor, Tensor] | None = None
    active_mask: Bool[Tensor, "*gates head"] | None = None

    __repr__ = in_one_line

    @property
    def active(self) -> Bool[Tensor, "*batch head"]:
        """True at heads that are active in a sentence.

        A head is inactive if it is not selected, if its gate is closed, or if the output projection
        does not use its output. Measures of heads skip inactive heads.
        """
        shape = (*self.joined.shape[:-2], self.block.heads)
        all_heads = self.joined.new_ones(shape, dtype=torch.bool)
        return all_heads if self.active_mask is None else all_heads & self.active_mask

    @property
    def has_attention_weights(self) -> bool:
        """Whether its heads have weights."""
        return self.logits_and_bias is not None

    @property
    def logits(self) -> Float[Tensor, "*batch head query key"]:
        """The sampled logits, or the scores of a block without a latent; finite everywhere.

        Logits of inactive heads are 0 if they were not computed.
        """
        return self._attention[0]

    @property
    def bias(self) -> Float[Tensor, "*mask 1 asking key"]:
        """The attention mask as a bias: 0 where a key may be attended to, else -inf.

        The query dimension may be 1, for all queries.
        """
        return self._attention[1]

    @property
    def _attention(self) -> tuple[Tensor, Tensor]:
        if self.logits_and_bias is None:
            raise ValueError(f"block {self.block.name!r} has no weights: its heads are n-grams")
        return self.logits_and_bias

    @property
    def weights(self) -> Float[Tensor, "*batch head query key"]:
        """``softmax(logits + bias)``, without dropout; NaN for inactive heads."""
        weights = torch.softmax(self.logits + self.bias, -1)
        return weights.masked_fill(~self.active[..., None, None], torch.nan)

    @property
    def readable(self) -> Bool[Tensor, "*mask asking key"]:
        """True where a key may be attended to."""
        return (self.bias == 0).squeeze(-3)

    @property
    def outputs(self) -> Float[Tensor, "*batch head query dim"]:
        """The output of every head, before the output projection."""
        return self.joined.unflatten(-1, (self.block.heads, -1)).transpose(-2, -3)


class Recording:
    """Records the heads of a model's blocks while it is open.

    ::

        with Recording(model) as heads:
            guide(batch)
        heads["encoder.2.self"].weights

    It records what the forward pass samples. Inside a guide these are samples from the posterior.
    Outside a guide, ``model(batch)`` and ``model.states(batch)`` sample heads, gates and selections
    from the *prior*, which is not conditioned on the target. ``with PlugIn(): model.states(batch)``
    sets heads to their prior's location, as in the plug-in network, and ``WithSelection(guide)``
    around it uses the most likely selection of the posterior. :func:`record_heads` does either.

    It works in training and evaluation mode, with any guide, and in decoding, where a block runs
    once per token: ``heads.passes("decoder.0.self")`` lists all passes. In decoding, keys include
    those of the cache; self-attention has a dimension of hypotheses after the sentences, and
    cross-attention has hypotheses in place of queries. A block can be addressed by its name or by
    the name of its site.

    A network that was compiled before the recording opens does not run its hooks.

    Args:
        model: The model.
        blocks: Names of the blocks to record; None for all, latent or not.
        keep_gradients: Keep the autograd graph; otherwise tensors are detached.
    """

    def __init__(
        self,
        model: nn.Module,
        blocks: Collection[str] | None = None,
        *,
        keep_gradients: bool = False,
    ) -> None:
        modules = [module for module in model.modules() if isinstance(module, HeadBlock)]
        self._modules = {module.block.name: module for module in modules if module.num_active_heads}
        if blocks is not None:
            check_list("blocks", blocks)
            names = [self._check_block(block_of(block)) for block in blocks]
            self._modules = {name: self._modules[name] for name in names}
        self.keep_gradients = keep_gradients
        self._passes: dict[str, list[Heads]] = defaultdict(list)
        self._removals: list[Callable[[], None]] = []
        self._pending: dict[str, tuple[Any, ...]] = {}

    def _check_block(self, name: str) -> str:
        if name not in self._modules:
            names = ", ".join(self._modules) or "no block"
            raise ValueError(f"unknown block {shown(name)}: this recording has {names}")
        return name

    def __repr__(self) -> str:
        passes = (f"{name}: {len(self._passes.get(name, ()))}" for name in self._modules)
        return f"Recording(passes of {', '.join(passes)})"

    @property
    def blocks(self) -> list[Block]:
        """The recorded blocks, in the order of the model's modules."""
        return [_projected_block(module) for module in self._modules.values()]

    @property
    def attention_blocks(self) -> list[Block]:
        """The recorded blocks that attend: their heads have weights."""
        modules = self._modules.values()
        return [_projected_block(module) for module in modules if module.has_attention_weights]

    def passes(self, block: str) -> list[Heads]:
        """All passes of a block, oldest first; empty if it did not run."""
        return self._passes[self._check_block(block_of(block))]

    def __getitem__(self, block: str) -> Heads:
        """The last pass of a block."""
        passes = self.passes(block)
        if not passes:
            raise ValueError(f"block {shown(block)} did not run while it was recorded")
        return passes[-1]

    def __enter__(self) -> Recording:
        """Registers the hooks."""
        for module in self._modules.values():
            name = module.block.name
            hook = partial(self._note_logits, name)
            module.hooks.append(hook)
            handle = module.projection.register_forward_pre_hook(partial(self._record, name))
            self._removals += [partial(module.hooks.remove, hook), handle.remove]
        return self

    def __exit__(self, *_: object) -> None:
        """Removes the hooks; the recorded heads stay."""
        while self._removals:
            self._removals.pop()()
        self._pending.clear()

    def _note_logits(self, name: str, *arguments: Any) -> None:
        """Stores the logits and the mask of a block until its projection runs."""
        self._pending[name] = arguments

    def _record(self, name: str, _: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        """Records a pass with the head outputs, the input of the projection."""
        (joined,) = inputs
        if name not in self._pending:
            return inputs
        if self.keep_gradients and not joined.requires_grad:
            joined = joined.detach().requires_grad_()
        module, (*arguments, active_mask) = self._modules[name], self._pending.pop(name)
        logits_and_bias = None
        if module.has_attention_weights:
            logits, _, mask = arguments
            logits_and_bias = self._detached(logits), self._detached(mask.bias)
        block = _projected_block(module)
        self._passes[name].append(
            Heads(block, self._detached(joined), logits_and_bias, active_mask)
        )
        return (joined,)

    def _detached(self, tensor: Tensor) -> Tensor:
        return tensor if self.keep_gradients else tensor.detach()


def _projected_block(module: HeadBlock) -> Block:
    """A block with the number of its heads that the output projection uses."""
    return replace(module.block, heads=module.num_active_heads)


def record_heads(
    model: HeadModel,
    batches: Part | Iterable[Batch],
    guide: ModelGuide | None = None,
    seed: int = 0,
) -> Iterator[tuple[Batch, Recording]]:
    """Runs a model in evaluation mode on every batch and records its heads.

    Latents shared by all sentences, such as a selection of heads or gates, are sampled once.

    Args:
        model: The model.
        batches: A part of a corpus, or batches, each sentence once.
        guide: Sample the heads from this guide; without one they are set to their plug-in value.
        seed: Seed of the guide's noise; the index of the batch is added to it.

    Yields:
        Each batch, on the model's device, and its recorded heads.
    """
    check_model(model)
    if guide is not None:
        check_pair(model, guide)
    device = model.device
    modules = [module for module in (model, guide) if isinstance(module, nn.Module)]
    shared_samples = SharedSamples()
    for index, batch in enumerate(iterate_batches(batches, "batches")):
        device_batch = batch.to(device)
        heads = Recording(model)
        with (
            eval_no_grad(*modules),
            fixed_noise(seed + index, device),
            blocked_from_tracers(),
            heads,
        ):
            if guide is None:
                with PlugIn():
                    model.states(device_batch)
            else:
                with shared_samples:
                    traces(model, guide, device_batch)
        yield device_batch, heads
