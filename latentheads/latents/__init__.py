"""The kinds of latents, a folder each; ``options`` and ``summed_out`` are common to them."""

from typing import TYPE_CHECKING

from latentheads.lazy import lazy_names

if TYPE_CHECKING:
    from latentheads.latents.alignments.options import AlignmentOptions as AlignmentOptions
    from latentheads.latents.bernoulli_heads.corpus import HeadPosterior as HeadPosterior
    from latentheads.latents.bernoulli_heads.options import (
        BernoulliHeadsOptions as BernoulliHeadsOptions,
    )
    from latentheads.latents.copy.options import CopyOptions as CopyOptions
    from latentheads.latents.gates.options import GateOptions as GateOptions
    from latentheads.latents.handlers import WithSelection as WithSelection
    from latentheads.latents.logits.options import LogitsOptions as LogitsOptions
    from latentheads.latents.selection.options import SelectionOptions as SelectionOptions

MODULES = {
    "AlignmentOptions": "latents.alignments.options",
    "BernoulliHeadsOptions": "latents.bernoulli_heads.options",
    "CopyOptions": "latents.copy.options",
    "GateOptions": "latents.gates.options",
    "HeadPosterior": "latents.bernoulli_heads.corpus",
    "LogitsOptions": "latents.logits.options",
    "SelectionOptions": "latents.selection.options",
    "WithSelection": "latents.handlers",
}
"""The module of every public name."""

__all__ = [*MODULES]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, MODULES)
