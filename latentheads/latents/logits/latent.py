"""Latent attention logits: the prior of the heads of every block."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from latentheads.errors import shown
from latentheads.families.family import Family, check_family
from latentheads.latents.latent import Latent
from latentheads.latents.logits.priors import Delta, Prior
from latentheads.names import Block, check_attention_types


class Logits(Latent):
    """Attention logits with a prior, sampled in every block; their posterior is a guide's family.

    Args:
        prior: Makes the prior of each block; by default a point mass at the scores.
        attention_types: The attention types whose heads are latent; None: all.
    """

    name: ClassVar[str] = "logits"
    before_blocks = True  # blocks are made with their prior

    def __init__(
        self, prior: Prior | None = None, attention_types: Collection[str] | None = None
    ) -> None:
        check_attention_types("attention_types", attention_types or ())
        self.prior = Delta() if prior is None else prior
        self.attention_types = None if attention_types is None else tuple(attention_types)
        if not isinstance(self.prior, Prior):
            is_class = isinstance(prior, type)
            value = f"the class: {prior.__name__}()" if is_class else shown(prior)
            raise ValueError(
                f"prior must be a Prior, such as make_prior('independent'), got {value}"
            )

    def prior_of(self, block: Block) -> Family | None:
        """The prior of a block's logits; None if they are deterministic."""
        return self._check(self.prior(block)) if self._includes(block) else None

    def output_prior_of(self, block: Block, noise: float) -> Family | None:
        """The prior of the outputs of n-gram heads; None if they are deterministic."""
        is_latent = noise > 0 and self._includes(block)
        return self._check(self.prior.outputs(block, noise)) if is_latent else None

    def _check(self, family: object) -> Family:
        return check_family(f"prior {type(self.prior).__name__} must return", family)

    def _includes(self, block: Block) -> bool:
        return self.attention_types is None or block.attention_type in self.attention_types
