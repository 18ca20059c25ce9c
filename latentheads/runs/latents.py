"""What of a model's heads is random: the latents by name, each with its group of options."""

from __future__ import annotations

from dataclasses import dataclass, field

from latentheads.alignment.options import AlignmentOptions
from latentheads.names import parse_attention_types
from latentheads.runs.pairs import PriorSpec
from latentheads.selection.gate_options import GateOptions
from latentheads.selection.options import SelectionOptions
from latentheads.values import convert_fields

__all__ = ["LATENTS", "Latents", "LogitsOptions"]

Latents = AlignmentOptions | SelectionOptions | GateOptions


@dataclass(frozen=True)
class LogitsOptions:
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
        parse_attention_types(self.blocks)


LATENTS: dict[str, type] = {
    "alignments": AlignmentOptions,
    "logits": LogitsOptions,
    "selection": SelectionOptions,
    "gates": GateOptions,
}
"""The latents by name: ``--latents alignments+gates``, each with a group of its name."""
