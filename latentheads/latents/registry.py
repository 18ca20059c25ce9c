"""All kinds of latents by name: the table of ``--latents``."""

from __future__ import annotations

from latentheads.latents.alignments.options import AlignmentOptions
from latentheads.latents.bernoulli_heads.options import BernoulliHeadsOptions
from latentheads.latents.copy.options import CopyOptions
from latentheads.latents.gates.options import GateOptions
from latentheads.latents.logits.options import LogitsOptions
from latentheads.latents.options import LatentOptions
from latentheads.latents.selection.options import SelectionOptions

LATENTS: dict[str, type[LatentOptions]] = {
    "alignments": AlignmentOptions,
    "copy": CopyOptions,
    "logits": LogitsOptions,
    "selection": SelectionOptions,
    "gates": GateOptions,
    "bernoulli-heads": BernoulliHeadsOptions,
}
"""The latents by name: ``--latents alignments+gates``, each with a group of its name."""

DEFAULT_LATENT = "alignments"
"""The latent of a run that names none."""
