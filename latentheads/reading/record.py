"""Every head on request: logits, weights and outputs of each block, in any pass of a model.

Hooks stand on the blocks only while a recording is open, so nothing is kept or computed for
somebody who does not ask.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from latentheads.attention import LatentAttention
from latentheads.batch import Batch
from latentheads.blocks import HeadBlock
from latentheads.bound import traces
from latentheads.evaluation import evaluating, fixed_noise
from latentheads.handlers import PlugIn, unseen
from latentheads.mask import Mask
from latentheads.names import Block

__all__ = ["Heads", "Recording", "readings"]


@dataclass(frozen=True)
class Heads:
    """The heads of a block in one pass.

    Attributes:
        block: The block.
        joined: The outputs of all heads side by side, as the output projection reads them: weights
            times values, or what an n-gram says, times the gate where there is one, under dropout
            while training.
        scored: The logits and the bias of a block that attends; None of n-grams.
    """

    block: Block
    joined: Float[Tensor, "*batch query width"]
    scored: tuple[Tensor, Tensor] | None = None

    @property
    def attends(self) -> bool:
        """Whether its heads have weights."""
        return self.scored is not None

    @property
    def logits(self) -> Float[Tensor, "*batch head query key"]:
        """What was drawn, or the scores of a block without a latent; finite everywhere."""
        return self._scored[0]

    @property
    def bias(self) -> Float[Tensor, "*mask 1 asking key"]:
        """What is added before the softmax: 0 where a key may be read, else -inf.

        One row may stand for all queries.
        """
        return self._scored[1]

    @property
    def _scored(self) -> tuple[Tensor, Tensor]:
        if self.scored is None:
            raise ValueError(f"block {self.block.name!r} has no weights: its heads are n-grams")
        return self.scored

    @property
    def weights(self) -> Float[Tensor, "*batch head query key"]:
        """``softmax(logits + bias)``, without the dropout of training."""
        return torch.softmax(self.logits + self.bias, -1)

    @property
    def readable(self) -> Bool[Tensor, "*mask asking key"]:
        """True where a key may be read."""
        return (self.bias == 0).squeeze(-3)

    @property
    def outputs(self) -> Float[Tensor, "*batch head query dim"]:
        """The output of every head, before the output projection."""
        return self.joined.unflatten(-1, (self.block.heads, -1)).transpose(-2, -3)


class Recording:
    """Keeps the heads of a model's blocks while it is open.

    ::

        with Recording(model) as heads:
            model(batch)
        heads["encoder.2.self"].weights

    It works in training and evaluation and under any guide, and in decoding, where a block runs
    once a token: ``heads.passes("decoder.0.self")`` lists all. Then a cache stands before the new
    keys; self-attention has a dimension of hypotheses behind the sentences, and cross-attention
    takes hypotheses for queries. A block is asked for by its name or by that of its site.

    A network compiled before a recording opens does not run new hooks.

    Args:
        model: The model.
        blocks: The names of those to record; None for all, latent or not.
        keep_gradients: Keep tensors in their graph; without it they are detached.

    Raises:
        ValueError: The model has no such block.
    """

    def __init__(
        self, model: nn.Module, blocks: Collection[str] | None = None, keep_gradients: bool = False
    ) -> None:
        modules = [m for m in model.modules() if isinstance(m, HeadBlock)]
        self._modules = {m.block.name: m for m in modules if m.speakers}
        if blocks is not None:
            self._modules = {name: self._modules[self._known(name)] for name in map(_own, blocks)}
        self.keep_gradients = keep_gradients
        self._passes: dict[str, list[Heads]] = defaultdict(list)
        self._handles: list[RemovableHandle] = []
        self._joined: dict[str, Tensor] = {}

    def _known(self, name: str) -> str:
        if name not in self._modules:
            names = ", ".join(self._modules) or "no block"
            raise ValueError(f"unknown block {name!r}: this recording has {names}")
        return name

    @property
    def blocks(self) -> list[Block]:
        """The blocks that are recorded, in the order in which the model holds them."""
        return [_spoken(module) for module in self._modules.values()]

    @property
    def attending(self) -> list[Block]:
        """Those of them whose heads have weights."""
        modules = self._modules.values()
        return [_spoken(module) for module in modules if isinstance(module, LatentAttention)]

    def passes(self, block: str) -> list[Heads]:
        """All passes of a block, oldest first; none if it did not run."""
        return self._passes[self._known(_own(block))]

    def __getitem__(self, block: str) -> Heads:
        """The last pass of a block."""
        found = self.passes(block)
        if not found:
            raise ValueError(f"block {block!r} did not run while it was recorded")
        return found[-1]

    def __enter__(self) -> Recording:
        """Puts hooks on the blocks."""
        for module in self._modules.values():
            self._handles += [
                module.projection.register_forward_pre_hook(self._joins(module.block)),
                module.register_forward_hook(self._keep, with_kwargs=True),
            ]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Takes the hooks away; what was recorded stays."""
        while self._handles:
            self._handles.pop().remove()
        self._joined.clear()

    def _joins(self, block: Block) -> Any:
        def hook(_: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
            (joined,) = inputs
            if self.keep_gradients and not joined.requires_grad:
                joined = joined.detach().requires_grad_()
            self._joined[block.name] = joined
            return (joined,)

        return hook

    def _keep(
        self, module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], found: Any
    ) -> None:
        assert isinstance(module, HeadBlock)
        joined, scored = self._kept(self._joined.pop(module.block.name)), None
        if isinstance(module, LatentAttention):
            mask: Mask = named["mask"] if "mask" in named else inputs[2]
            logits, mask = mask.over_keys(module.attention.spoken(found[1]))
            scored = self._kept(logits), self._kept(mask.bias)
        self._passes[module.block.name].append(Heads(_spoken(module), joined, scored))

    def _kept(self, tensor: Tensor) -> Tensor:
        return tensor if self.keep_gradients else tensor.detach()


def _spoken(module: HeadBlock) -> Block:
    """A block with those of its heads that are read out."""
    return replace(module.block, heads=module.speakers)


def _own(block: str) -> str:
    """The name of a block, from itself or from its site's."""
    return block.removesuffix(".logits").removesuffix(".outputs")


def readings(
    model: Any, parts: Iterable[Batch], guide: Any = None, seed: int = 0
) -> Iterator[tuple[Batch, Recording]]:
    """Runs a model in evaluation mode on every batch, and tells its heads.

    Args:
        model: The model.
        parts: Batches, each sentence once.
        guide: Draws the heads from this guide; without one they stand at their prior's plug-in
            value.
        seed: Of the guide's noise, together with the place of the batch.

    Yields:
        Each batch, on the model's device, and its heads.
    """
    device = next(model.parameters()).device
    modules = [part for part in (model, guide) if isinstance(part, nn.Module)]
    for place, batch in enumerate(parts):
        here = batch.to(device)
        heads = Recording(model)
        with evaluating(*modules), fixed_noise(seed + place, device), unseen(), heads:
            _run(model, guide, here)
        yield here, heads


def _run(model: Any, guide: Any, batch: Batch) -> None:
    if guide is not None:
        traces(model, guide, batch)
        return
    with PlugIn():
        model.states(batch)
