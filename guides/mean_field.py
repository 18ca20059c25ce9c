r"""The strict product :math:`q(z \mid x) = \prod_l \prod_i q(z_i^l \mid x)`."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from pyro import poutine
from pyro.poutine.messenger import Messenger
from torch import Tensor

from latentheads.alignment.posterior import AutoConditionOn
from latentheads.attention.block import without_hooks
from latentheads.distributions import HeadContext, HeadVariable
from latentheads.distributions.heads import BlockStates
from latentheads.families import Family, Gaussian, HeadScale, OwnMLP, TargetConditioned
from latentheads.guide import Guide, check_options
from latentheads.handlers import PlugIn, evaluation_mode
from latentheads.model import HeadModel
from latentheads.names import Block
from latentheads.posterior_lookup import context_of

__all__ = ["MeanField"]


class MeanField(Guide):
    """Heads independent given x, in and across layers.

    No location may depend on a sampled head, so the scores are those of a pass without noise and
    without dropout, made before the sampled pass: this guide alone costs two passes.

    Its KL squares the difference of two passes, which bfloat16 would round apart (0.041 nats a
    token on a trained model of the grammar): both are float32, whatever autocast is asked for.

    Args:
        model: The model to read; it must have ``states``.
        hidden: Hidden width of the correction over the number of heads.
        scale: Where the posterior's standard deviation starts.
        learned_scale: Whether to learn it, one number a head.
        reads: What the posterior reads: source, prefix (the words before too) or target (the whole
            target too). auto: of alignments the target, of logits the source.

    Example:
        >>> MeanField(model).passes, Cascaded(model).passes
        (2, 1)
    """

    passes = 2
    tied_prior = "independent"
    alignment_form = "mean-field"
    of_logits = ("hidden", "scale", "learned_scale")
    of_text = ("reads",)

    def __init__(
        self,
        model: HeadModel,
        hidden: int = 4,
        scale: float = 1.0,
        learned_scale: bool = True,
        reads: AutoConditionOn = "auto",
    ) -> None:
        super().__init__(model)
        check_options(hidden, scale)
        self.hidden, self.scale, self.learned_scale = hidden, scale, learned_scale
        self.reads = reads
        self._plain: dict[str, HeadContext] = {}

    def family(self, block: Block) -> Family:
        """Corrected scores of the pass without noise, with its own scale."""
        scale = HeadScale(block.heads, self.scale, self.learned_scale)
        return Gaussian(OwnMLP(block.heads, self.hidden), scale)

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        """Runs the model; where logits are drawn, both passes in float32."""
        device = self.model.device.type
        # alignments alone take one pass, and no difference of two
        with torch.autocast(device, enabled=False) if self._blocks else nullcontext():
            try:
                return super().__call__(*args, **kwargs)
            finally:
                self._plain = {}  # they have a graph, which no copy of the guide can take along

    def prepare(self) -> None:
        """Computes every block's scores, as soon as it is known which heads speak."""
        if self._blocks and not self._selecting:
            self._read_plain()

    def _read_plain(self) -> None:
        """Computes every block's scores without noise and without dropout.

        They are what the model knows, and so of its own batch.
        """
        batch = self.model_batch
        told = [
            s
            for s, b in self._blocks.items()
            if isinstance(self.families[b.key], TargetConditioned)
        ]
        states = _States(told)
        drawn = {site: self.trace.nodes[site]["value"] for site in self._selecting}
        with (
            evaluation_mode(self.model),
            without_hooks(self.model),
            poutine.block(),
            poutine.trace() as plain,
            PlugIn(),
            states,
        ):
            if drawn:
                self.model.states(batch, self.model.choose(batch, drawn))
            else:
                self.model.states(batch)
        nodes = plain.trace.nodes
        self._plain = {
            block.key: replace(context_of(site, nodes[site]["fn"]), states=states.found.get(site))
            for site, block in self._blocks.items()
        }

    def posterior(self, block: Block, context: HeadContext) -> HeadVariable:
        """Replaces what the block knows by what it knows without noise."""
        if not self._plain:
            self._read_plain()
        known = self._plain[block.key]
        plain = replace(context, scores=known.scores, lower=None, states=known.states)
        return super().posterior(block, plain)


class _States(Messenger):
    """Keeps the states that blocks read, which are let go as soon as their heads are drawn."""

    def __init__(self, sites: Collection[str]) -> None:
        super().__init__()
        self.sites, self.found = sites, dict[str, BlockStates]()

    def _pyro_sample(self, msg: Any) -> None:
        if msg["name"] in self.sites:
            context = context_of(msg["name"], msg["fn"])
            self.found[msg["name"]] = BlockStates(context.query, context.key)
