"""Options of latent attention logits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, NoReturn, cast

from latentheads.latents.latent import Latent
from latentheads.latents.logits.latent import Logits
from latentheads.latents.logits.priors import PRIORS, Prior
from latentheads.latents.options import LatentOptions, ModelShape
from latentheads.names import AttentionTypes, parse_attention_types
from latentheads.options import ClassSpec, Coerced, OptionError, options_class

DEFAULT_PRIOR = "delta"
"""The prior of attention logits that are not latent."""


class OfGuide(Prior):
    """Stands for the prior that has the guide's own form; resolved before anything is built."""

    def __call__(self, block: Any) -> NoReturn:
        """Is never built."""
        raise TypeError("prior tied must be resolved first")


class PriorSpec(ClassSpec):
    """A prior of logits and its options; ``tied`` stands for that of the guide's own form."""

    base: ClassVar[type] = Prior

    @classmethod
    def choices(cls) -> Mapping[str, type]:
        return {**PRIORS, "tied": OfGuide}

    @classmethod
    def read(cls, value: Any, trusted: Collection[str] = ()) -> Any:
        """A prior from its name, from a name with options, or from the prior itself."""
        return cls.of(value) if isinstance(value, Prior) else super().read(value, trusted)


@options_class()
class LogitsOptions(LatentOptions):
    """Latent attention logits: Gaussian noise with a prior, as Zheng et al. 2021.

    Attributes:
        prior: The prior of a block's logits.
        blocks: Attention types whose logits are latent: all, or some of encoder-self, decoder-self
            and decoder-cross, comma between.
    """

    prior: Coerced[PriorSpec, str | Mapping[str, Any] | Prior] = cast(Any, PriorSpec("independent"))
    blocks: AttentionTypes = "all"

    kind: ClassVar[type[Latent]] = Logits

    def __post_init__(self) -> None:
        if self.prior.name == DEFAULT_PRIOR and self.blocks != "all":
            raise OptionError(
                "blocks", f" is for a prior that differs from {DEFAULT_PRIOR}: drop it"
            )

    def make(self, shape: ModelShape) -> Logits:
        kind = self.prior.find()
        if kind is OfGuide:
            raise ValueError("logits.prior tied needs a run, with a guide: name a prior")
        return Logits(kind(**self.prior.options), parse_attention_types(self.blocks))

    @property
    def is_noisy(self) -> bool:
        """Whether the prior has noise."""
        return not self.prior.find().deterministic

    @classmethod
    def labels(cls, name: str) -> Mapping[str, Mapping[str, Any]]:
        return {}

    @property
    def has_guide_form(self) -> bool:
        return self.is_noisy

    @property
    def phrase(self) -> str:
        kind = "latent" if self.is_noisy else "deterministic"
        return f"{kind} attention logits (prior: {self.prior.name})"
