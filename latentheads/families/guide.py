"""The base of guides of logits: one posterior family for each block of heads."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from pyro.infer.util import is_validation_enabled
from torch import nn

from latentheads.checks import MAX_WIDTH, check_number, check_positive, check_within
from latentheads.distributions.heads import HeadContext, HeadVariable
from latentheads.distributions.normal import DeltaHeads
from latentheads.families.family import (
    Dependence,
    Family,
    check_family,
    check_head_distribution,
    check_positive_scale,
)
from latentheads.families.target_conditioned import TargetConditioned, WordScores
from latentheads.guide import ModelGuide, get_conditioned_block, modules_with_noise
from latentheads.latents.network import NetworkBlock
from latentheads.layers.output import RowOutput
from latentheads.names import Block
from latentheads.posterior_lookup import context_of


def check_options(hidden: int, scale: float) -> None:
    """Check the range of options, whether or not a block of the model uses them."""
    check_number("guide.hidden", hidden, whole=True)
    check_within("guide.hidden", hidden, 1, MAX_WIDTH)
    check_number("guide.scale", scale)
    check_positive("guide.scale", scale)


class Guide(ModelGuide):
    """A posterior over the heads of a model: one family for each block.

    A subclass defines :meth:`family`, the posterior family of a block's logits; :meth:`outputs` is
    that of n-gram heads' outputs. For more freedom override :meth:`posterior`, which is given the
    block, the batch and the block's states, or :meth:`prepare`. Any other site, such as a latent of
    the user's own, keeps its prior. The families are made after the constructor: to change them
    override :meth:`post_init`.

    Args:
        model: A model that lists its latent ``blocks``.

    Example:
        >>> from latentheads.families import Gaussian, HeadScale, Identity
        >>> class Sharper(Guide):
        ...     def family(self, block):
        ...         return Gaussian(Identity(), HeadScale(block.heads, 0.5, learned=True))
        >>> lh.terms(model, Sharper(model), batch).how["encoder.0.self.logits"]
        'analytic'
    """

    def post_init(self) -> None:
        condition_on = self.condition_on
        super().post_init()
        noisy_blocks = [module.block for module in modules_with_noise(self.model)]
        maker = f"{type(self).__name__}.family must return"
        self.families = nn.ModuleDict(
            {block.key: check_family(maker, self.family(block)) for block in noisy_blocks}
        )
        self._blocks = {block.site(): block for block in noisy_blocks}
        conditioned_block = get_conditioned_block(self.model)
        if conditioned_block is not None and condition_on in ("prefix", "target"):
            output, block = cast(RowOutput, self.model.output), conditioned_block.block
            width = conditioned_block.output_weight.shape[0]
            scores = WordScores(block.heads, width, output, target=condition_on == "target")
            self.families[block.key] = TargetConditioned(
                cast(Family, self.families[block.key]), scores
            )
        for module in self.model.latent_outputs:
            self.families[module.block.key] = self.outputs(module)
            self._blocks[module.site] = module.block
        self.to(self.model.device)
        self._check_has_posterior()

    @abstractmethod
    def family(self, block: Block) -> Family:
        """Make the posterior family of a block."""

    def _check_has_posterior(self) -> None:
        """Raises an error for posteriors of logits alone where only other latents are random."""
        methods = "post_init", "get_posterior", "latent_posterior"
        has_own = any(getattr(type(self), name) is not getattr(Guide, name) for name in methods)
        if has_own or self.families or self.shared_posteriors:
            return
        if self.structure is None and self.model.is_summed_out:
            latents = self.model.latents.items()
            names = ", ".join(name for name, latent in latents if latent.is_summed_out)
            raise ValueError(
                f"{type(self).__name__} has a posterior of logits, and only {names} are latent: "
                "make the model with latents=[lh.latents.LogitsOptions()], or give the guide a "
                "structure"
            )

    def outputs(self, module: NetworkBlock) -> Family:
        """Make the posterior family of heads without attention weights, such as n-grams.

        The default is initialised to the prior.
        """
        return cast(Family, module.make_posterior())

    @property
    def is_target_conditioned(self) -> bool:
        return super().is_target_conditioned or any(
            isinstance(family, TargetConditioned) for family in self.families.values()
        )

    def posterior(self, block: Block, context: HeadContext) -> HeadVariable:
        """Compute the posterior of a block's logits, or of the outputs of n-gram heads.

        Args:
            block: The block; its family is ``self.families[block.key]``.
            context: The batch, scores, logits below, mask, and the states of queries and keys, in
                this pass.
        """
        return self.families[block.key](context)

    def dependence(self, block: Block) -> Dependence:
        if block.key not in self.families:
            return Dependence(across_heads=False, on_lower_logits=False)
        return cast(Family, self.families[block.key]).dependence

    def prune(self, block: Block, heads: Sequence[int]) -> None:
        """Keep some heads of a block's family; without heads drop the family."""
        if block.key not in self.families:
            return
        if heads:
            cast(Family, self.families[block.key]).prune(heads)
        else:
            del self.families[block.key]
            self._blocks = {site: b for site, b in self._blocks.items() if b.key != block.key}

    def get_posterior(self, name: str, prior: Any) -> Any:
        """Return the posterior of the block's family, or of a discrete latent; else the prior."""
        block = self._blocks.get(name)
        if block is None:
            return self.latent_posterior(name, prior)
        if isinstance(prior, DeltaHeads):
            return prior
        posterior = self.posterior(block, replace(context_of(name, prior), batch=self.batch))
        check_head_distribution(name, posterior, prior.shape())
        # on a GPU the check would synchronise
        if is_validation_enabled() and self.model.device.type == "cpu":
            check_positive_scale(name, type(self).__name__, posterior)
        return posterior
