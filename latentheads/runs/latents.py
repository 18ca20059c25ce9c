"""What of a model's heads is random: the latents by name, each with its group of options."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from latentheads.latents.alignments.options import AlignmentOptions
from latentheads.latents.gates.options import GateOptions
from latentheads.latents.options import LatentOptions, ModelShape
from latentheads.latents.selection.options import SelectionOptions
from latentheads.model import HeadModel
from latentheads.names import name_attention_types, parse_attention_types
from latentheads.runs.pairs import DEFAULT_PRIOR, PriorSpec
from latentheads.values import convert_fields

__all__ = ["LATENTS", "LogitsOptions"]


@dataclass(frozen=True)
class LogitsOptions(LatentOptions):
    """Latent attention logits: Gaussian noise with a prior, as in the papers.

    Attributes:
        prior: The prior of a block's logits.
        blocks: Attention types whose logits are latent: all, or some of encoder-self, decoder-self
            and decoder-cross, comma between.
    """

    prior: PriorSpec = field(default_factory=lambda: PriorSpec("independent"))
    blocks: str = "all"

    def __post_init__(self) -> None:
        convert_fields(self)
        self.prior.check()
        parse_attention_types(self.blocks)

    @property
    def is_noisy(self) -> bool:
        """Whether the prior has noise."""
        return not self.prior.find().deterministic

    def model_arguments(self, shape: ModelShape) -> dict[str, Any]:
        """The attention types whose logits are latent; the prior is that of the pair."""
        return {"latent": parse_attention_types(self.blocks)}

    @property
    def has_guide_form(self) -> bool:
        """Whether a guide has a posterior of them."""
        return self.is_noisy

    @property
    def phrase(self) -> str:
        """The prior."""
        kind = "latent" if self.is_noisy else "deterministic"
        return f"{kind} attention logits (prior: {self.prior.name})"

    @classmethod
    def describe(cls, model: HeadModel, tokens: int) -> LogitsOptions | None:
        """The prior of a model, and the attention types whose logits are latent."""
        prior = PriorSpec.of(cast(Any, model).prior)
        blocks = name_attention_types(model.latent, model.attention_types)
        if prior.name == DEFAULT_PRIOR and blocks == "all":
            return None
        return cls(prior, blocks)


LATENTS: dict[str, type[LatentOptions]] = {
    "alignments": AlignmentOptions,
    "logits": LogitsOptions,
    "selection": SelectionOptions,
    "gates": GateOptions,
}
"""The latents by name: ``--latents alignments+gates``, each with a group of its name."""
