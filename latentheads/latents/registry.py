"""All kinds of latents by name: the table of ``--latents``."""

from __future__ import annotations

from latentheads.latents.alignments.options import AlignmentOptions
from latentheads.latents.gates.options import GateOptions
from latentheads.latents.logits.options import LogitsOptions
from latentheads.latents.options import LatentOptions
from latentheads.latents.selection.options import SelectionOptions

LATENTS: dict[str, type[LatentOptions]] = {
    "alignments": AlignmentOptions,
    "logits": LogitsOptions,
    "selection": SelectionOptions,
    "gates": GateOptions,
}
"""The latents by name: ``--latents alignments+gates``, each with a group of its name."""

DEFAULT_LATENT = "alignments"
"""The latent of a run that names none."""
