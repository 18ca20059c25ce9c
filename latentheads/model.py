"""What every model is: a network whose blocks are drawn, and a likelihood, in one plate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import pyro
import torch
from jaxtyping import Float
from torch import Tensor, nn

from latentheads.attention.block import GatePrior, HeadBlock
from latentheads.attention.disagreement import Disagreement
from latentheads.attention.latent import LatentAttention
from latentheads.batch import PAD, Batch
from latentheads.distributions import SmoothedTokens, Tokens
from latentheads.effects import tell_parameters
from latentheads.layers.output import Output
from latentheads.models.network import Network
from latentheads.models.priors import Prior
from latentheads.names import SENTENCES, TARGET, Block
from latentheads.selection.hard_gates import Gating
from latentheads.selection.selector import Choice, Selector

__all__ = ["HeadModel", "attention", "filled"]

A = TypeVar("A", bound=LatentAttention)


def attention(
    block: Block,
    network: Network,
    prior: Prior,
    latent: Collection[str],
    gate: GatePrior | None = None,
    selector: Selector | None = None,
    kind: Callable[..., A] = LatentAttention,  # type: ignore[assignment]
) -> A:
    """Makes a block, latent where its chain is and with candidates where its chain selects."""
    block, selector = filled(block, selector)
    family = prior(block) if block.chain in latent else None
    return kind(block, network.width, family, gate, network.attention_dropout, selector)


def filled(block: Block, selector: Selector | None) -> tuple[Block, Selector | None]:
    """A block with the places that its selector fills, and the selector if its chain selects."""
    if selector is None or block.chain not in selector.chains:
        return block, None
    return replace(block, heads=selector.places), selector


class HeadModel(nn.Module, ABC):
    """p(y, heads | x): run under Pyro it draws every head and observes the target.

    Attributes:
        output: The layer that turns the states into tokens; a subclass makes it.
        disagreement: A term that rewards heads for differing while training; None at first.

    Args:
        chains: The chains of blocks this network has.
        latent: Those whose heads are drawn; None for all.
        label_smoothing: Of the likelihood while training; evaluation is always exact.
        selector: How blocks select their heads among candidates; None: all heads speak.
    """

    output: Output

    def __init__(
        self,
        chains: Collection[str],
        latent: Collection[str] | None = None,
        label_smoothing: float = 0.0,
        selector: Selector | None = None,
    ) -> None:
        super().__init__()
        self.selector = selector
        self.pressure = selector.pressure if isinstance(selector, Gating) else None
        self.latent = tuple(chains if latent is None else latent)
        unknown = set(self.latent) - set(chains)
        if unknown:
            raise ValueError(f"unknown chain {min(unknown)!r}: choose from {', '.join(chains)}")
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing must lie in [0, 1), got {label_smoothing}")
        self.label_smoothing = label_smoothing
        self.disagreement: Disagreement | None = None

    @property
    def blocks(self) -> list[Block]:
        """The blocks whose logits are drawn, in the order in which they are."""
        return [module.block for module in self._drawn("logits")]

    @property
    def drawn_outputs(self) -> list[HeadBlock]:
        """The n-gram blocks, of which what their heads say is drawn."""
        return self._drawn("outputs")

    def _drawn(self, latent: str) -> list[HeadBlock]:
        modules = (m for m in self.modules() if isinstance(m, HeadBlock))
        return [m for m in modules if m.prior is not None and m.latent == latent]

    @property
    def selecting(self) -> list[HeadBlock]:
        """The blocks that select their heads among candidates."""
        modules = (m for m in self.modules() if isinstance(m, HeadBlock))
        return [module for module in modules if module.selector is not None]

    def choose(self, batch: Batch, drawn: Mapping[str, Tensor] | None = None) -> dict[str, Choice]:
        """Draws which heads speak for every task, once for all sentences there are.

        Args:
            batch: The sentences.
            drawn: What was drawn at each site; it is then not drawn again.
        """
        if drawn is not None:
            return self._chosen(batch, drawn)
        found: dict[str, Choice] = {}
        sides = {"encoder": batch.source_task, "decoder": batch.target_task}
        for side, task in sides.items():
            blocks = [m for m in self.selecting if m.block.chain.startswith(side)]
            if blocks and self.selector is not None:
                with pyro.plate(f"{side}_tasks", self.selector.tasks(blocks[0].block.chain)):
                    found |= {m.block.name: m.choose(task, batch.one_task) for m in blocks}
        return found

    def _chosen(self, batch: Batch, drawn: Mapping[str, Tensor]) -> dict[str, Choice]:
        found: dict[str, Choice] = {}
        for module in self.selecting:
            task = batch.task_of(module.block.chain)
            value = drawn.get(module.block.site("selection"))
            found[module.block.name] = module.choose(task, batch.one_task, value)
        return found

    @abstractmethod
    def states(
        self, batch: Batch, choices: Mapping[str, Choice] | None = None
    ) -> Float[Tensor, "*batch target dim"]:
        """Runs the network up to the states that predict each target token.

        Args:
            batch: The sentences.
            choices: The selected heads of blocks that select; drawn when not given.
        """

    def predict(
        self, states: Float[Tensor, "*batch target dim"]
    ) -> Float[Tensor, "*batch target vocab"]:
        """Scores the vocabulary."""
        return self.output(states)

    def likelihood(self, states: Float[Tensor, "*batch target dim"], batch: Batch) -> Tokens:
        """The law of the scored tokens: smoothed while training if asked, exact otherwise."""
        states, valid = states[..., batch.context :, :], batch.scored != PAD
        if self.training and self.label_smoothing:
            return SmoothedTokens(states, valid, self.output, self.label_smoothing)
        return Tokens(states, valid, self.output)

    def forward(self, batch: Batch, observe: bool = True) -> Any:
        """Draws every head, then the target.

        Args:
            batch: The sentences.
            observe: Condition on the batch's target; if not, tokens are drawn after its prefix.
        """
        tell_parameters("model", self)
        choices = self.choose(batch)
        with pyro.plate(SENTENCES, size=batch.size, subsample=batch.sentences):
            law = self.likelihood(self._differing(batch, choices), batch)
            return pyro.sample(TARGET, law, obs=batch.scored if observe else None)

    def _differing(
        self, batch: Batch, choices: Mapping[str, Choice]
    ) -> Float[Tensor, "*batch target dim"]:
        """Runs the network; while training, with a factor a block for how its heads differ."""
        given: tuple[Any, ...] = (batch, choices) if choices else (batch,)
        term = self.disagreement
        if term is None or not self.training:
            return self.states(*given)
        with term.heard(self) as found:
            states = self.states(*given)
        tokens = (batch.scored != PAD).sum(-1)
        for block, value in found.items():
            pyro.factor(f"{block}.disagreement", -term.weight * tokens * value)
        return states

    @property
    def dtype(self) -> torch.dtype:
        """The type of the parameters."""
        return next(self.parameters()).dtype

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device
