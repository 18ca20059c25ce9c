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

from latentheads.attention.block import without_hooks
from latentheads.distributions.heads import BlockStates, HeadContext, HeadVariable
from latentheads.families.family import Family
from latentheads.families.guide import Guide, check_options
from latentheads.families.location import OwnMLP
from latentheads.families.normal import Gaussian
from latentheads.families.scale import HeadScale
from latentheads.families.target_conditioned import TargetConditioned
from latentheads.handlers import PlugIn
from latentheads.latents.latent import AutoConditionOn, LatentModel
from latentheads.names import Block
from latentheads.passes import evaluation_mode
from latentheads.posterior_lookup import context_of


class MeanField(Guide):
    """Heads are independent given the text, within and across layers.

    No location may depend on a sampled head. So the scores of latent logits come from an additional
    pass without noise and without dropout: this guide alone needs two passes.

    Its KL squares the difference between two passes, which bfloat16 would round (an error of 0.041
    nats per token on a trained model of the grammar). Both are float32, even under autocast.

    Args:
        model: The model; it must have ``states``.
        hidden: Hidden width of the correction, as a multiple of the number of heads.
        scale: Initial standard deviation of the posterior.
        learned_scale: Whether to learn the scale, one number for each head.
        condition_on: The text that the posterior is conditioned on: source, prefix (also the target
            before the word) or target (also the whole target). auto: the target for discrete
            latents, the source for logits.

    Example:
        >>> MeanField(model).passes, Cascaded(model).passes
        (2, 1)
    """

    passes = 2
    tied_prior = "independent"
    structure = "mean-field"
    of_logits = ("hidden", "scale", "learned_scale")
    of_text = ("condition_on",)

    def __init__(
        self,
        model: LatentModel,
        hidden: int = 4,
        scale: float = 1.0,
        learned_scale: bool = True,
        condition_on: AutoConditionOn = "auto",
    ) -> None:
        super().__init__(model)
        check_options(hidden, scale)
        self.hidden, self.scale, self.learned_scale = hidden, scale, learned_scale
        self.condition_on = condition_on
        self._noiseless: dict[str, HeadContext] = {}

    def family(self, block: Block) -> Family:
        """The family of corrected scores of the pass without noise, with a free scale."""
        scale = HeadScale(block.heads, self.scale, self.learned_scale)
        return Gaussian(OwnMLP(block.heads, self.hidden), scale)

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
        """Run the model; with latent logits, both passes in float32."""
        device = self.model.device.type
        # latent alignments only: one pass, no difference of two
        with torch.autocast(device, enabled=False) if self._blocks else nullcontext():
            try:
                return super().__call__(*args, **kwargs)
            finally:
                self._noiseless = {}  # tensors with a graph cannot be copied with the guide

    def prepare(self) -> None:
        """Compute every block's scores, unless a latent that they share is yet to be sampled."""
        if self._blocks and not self.shared_posteriors:
            self._compute_noiseless_contexts()

    def _compute_noiseless_contexts(self) -> None:
        """Compute every block's scores without noise and without dropout, on the model's batch."""
        batch = self.model_batch
        families = {site: self.families[block.key] for site, block in self._blocks.items()}
        recorder = _BlockStateRecorder(
            [site for site, family in families.items() if isinstance(family, TargetConditioned)]
        )
        sampled = [site for site in self.shared_posteriors if site in self.trace.nodes]
        selections = {site: self.trace.nodes[site]["value"] for site in sampled}
        with (
            evaluation_mode(self.model),
            without_hooks(self.model),
            poutine.block(),
            poutine.trace() as trace,
            PlugIn(),
            recorder,
        ):
            self.model.states(batch, self.model.select_heads(batch, selections or None))
        nodes = trace.trace.nodes
        self._noiseless = {
            block.key: replace(
                context_of(site, nodes[site]["fn"]), states=recorder.states.get(site)
            )
            for site, block in self._blocks.items()
        }

    def posterior(self, block: Block, context: HeadContext) -> HeadVariable:
        """The posterior, with the context of the pass without noise."""
        if not self._noiseless:
            self._compute_noiseless_contexts()
        noiseless = self._noiseless[block.key]
        context = replace(context, scores=noiseless.scores, lower=None, states=noiseless.states)
        return super().posterior(block, context)


class _BlockStateRecorder(Messenger):
    """Record the states of blocks, which are freed as soon as their heads are sampled."""

    def __init__(self, sites: Collection[str]) -> None:
        super().__init__()
        self.sites, self.states = sites, dict[str, BlockStates]()

    def _pyro_sample(self, msg: Any) -> None:
        if msg["name"] in self.sites:
            context = context_of(msg["name"], msg["fn"])
            self.states[msg["name"]] = BlockStates(context.query, context.key)
