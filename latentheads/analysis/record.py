"""Every head on request: logits, weights and outputs of each block, in any pass of a model.

A recording listens to the blocks only while it is open; without one nothing is kept or computed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from latentheads.attention.block import HeadBlock
from latentheads.batch import Batch
from latentheads.corpora import Part
from latentheads.corpora.batches import every_batch
from latentheads.guide import ModelGuide
from latentheads.handlers import PlugIn, SharedSamples, blocked_from_tracers
from latentheads.inference.bound import traces
from latentheads.inference.evaluation import evaluating
from latentheads.model import HeadModel
from latentheads.names import Block, block_of
from latentheads.noise import fixed_noise

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
        speaking: True at heads that are heard; None: all are.
    """

    block: Block
    joined: Float[Tensor, "*batch query width"]
    scored: tuple[Tensor, Tensor] | None = None
    speaking: Bool[Tensor, "*gates head"] | None = None

    @property
    def speaks(self) -> Bool[Tensor, "*batch head"]:
        """True at heads that say something in a sentence.

        A head is silent where it is not chosen, where its gate is closed, and where the output
        projection reads nothing of it. No measure of heads counts it there.
        """
        shape = (*self.joined.shape[:-2], self.block.heads)
        every = self.joined.new_ones(shape, dtype=torch.bool)
        return every if self.speaking is None else every & self.speaking

    @property
    def attends(self) -> bool:
        """Whether its heads have weights."""
        return self.scored is not None

    @property
    def logits(self) -> Float[Tensor, "*batch head query key"]:
        """The logits that were drawn, or the scores of a block without a latent; finite everywhere.

        Those of a silent head are 0 where nothing had to compute them.
        """
        return self._scored[0]

    @property
    def bias(self) -> Float[Tensor, "*mask 1 asking key"]:
        """The term added before the softmax: 0 where a key may be read, else -inf.

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
        """``softmax(logits + bias)``, without the dropout of training; NaN of a silent head."""
        weights = torch.softmax(self.logits + self.bias, -1)
        return weights.masked_fill(~self.speaks[..., None, None], torch.nan)

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
            guide(batch)
        heads["encoder.2.self"].weights

    A recording has what the pass draws: in a guide, draws from the posterior. Outside one,
    ``model(batch)`` and ``model.states(batch)`` draw heads, gates and selections from the *prior*,
    which knows nothing of the target. ``with PlugIn(): model.states(batch)`` sets heads to their
    prior's location, as the plug-in network does, and ``WithSelection(guide)`` around it takes the
    likeliest selection of the posterior. :func:`readings` runs a model either way.

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
        if isinstance(blocks, str):
            raise ValueError(f"blocks must be a list of names, as [{blocks!r}], got {blocks!r}")
        if blocks is not None:
            names = [self._known(block_of(block)) for block in blocks]
            self._modules = {name: self._modules[name] for name in names}
        self.keep_gradients = keep_gradients
        self._passes: dict[str, list[Heads]] = defaultdict(list)
        self._endings: list[Callable[[], None]] = []
        self._heard: dict[str, tuple[Any, ...]] = {}

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
        """The recorded blocks whose heads have weights."""
        modules = self._modules.values()
        return [_spoken(module) for module in modules if module.attends]

    def passes(self, block: str) -> list[Heads]:
        """All passes of a block, oldest first; none if it did not run."""
        return self._passes[self._known(block_of(block))]

    def __getitem__(self, block: str) -> Heads:
        """The last pass of a block."""
        found = self.passes(block)
        if not found:
            raise ValueError(f"block {block!r} did not run while it was recorded")
        return found[-1]

    def __enter__(self) -> Recording:
        """Begins to listen to the blocks."""
        for module in self._modules.values():
            name = module.block.name
            watch = partial(self._hear, name)
            module.watchers.append(watch)
            keep = module.projection.register_forward_pre_hook(partial(self._keep, name))
            self._endings += [partial(module.watchers.remove, watch), keep.remove]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Listens no longer; what was recorded stays."""
        while self._endings:
            self._endings.pop()()
        self._heard.clear()

    def _hear(self, name: str, *heads: Any) -> None:
        """Notes the heads of a block in a pass, before they are read out."""
        self._heard[name] = heads

    def _keep(self, name: str, _: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        """Keeps a pass that was noted, with the outputs as the projection reads them."""
        (joined,) = inputs
        if name not in self._heard:
            return inputs
        if self.keep_gradients and not joined.requires_grad:
            joined = joined.detach().requires_grad_()
        module, (*told, speaking), scored = self._modules[name], self._heard.pop(name), None
        if module.attends:
            logits, _, mask = told
            scored = self._kept(logits), self._kept(mask.bias)
        found = Heads(_spoken(module), self._kept(joined), scored, speaking)
        self._passes[name].append(found)
        return (joined,)

    def _kept(self, tensor: Tensor) -> Tensor:
        return tensor if self.keep_gradients else tensor.detach()


def _spoken(module: HeadBlock) -> Block:
    """A block with those of its heads that are read out."""
    return replace(module.block, heads=module.speakers)


def readings(
    model: HeadModel, parts: Part | Iterable[Batch], guide: ModelGuide | None = None, seed: int = 0
) -> Iterator[tuple[Batch, Recording]]:
    """Runs a model in evaluation mode on every batch, and tells its heads.

    What all sentences share, as a selection of heads or their gates, is drawn once.

    Args:
        model: The model.
        parts: A part of a corpus, or batches, each sentence once.
        guide: Draws the heads from this guide; without one they stand at their prior's plug-in
            value.
        seed: Of the guide's noise, together with the place of the batch.

    Yields:
        Each batch, on the model's device, and its heads.
    """
    device = model.device
    modules = [part for part in (model, guide) if isinstance(part, nn.Module)]
    held = SharedSamples()
    for place, batch in enumerate(every_batch(parts, "parts")):
        here = batch.to(device)
        heads = Recording(model)
        with evaluating(*modules), fixed_noise(seed + place, device), blocked_from_tracers(), heads:
            _run(model, guide, here, held)
        yield here, heads


def _run(model: HeadModel, guide: ModelGuide | None, batch: Batch, held: SharedSamples) -> None:
    if guide is not None:
        with held:
            traces(model, guide, batch)
        return
    with PlugIn():
        model.states(batch)
