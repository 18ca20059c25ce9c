"""Tiny models with alignments, away from their start."""

from __future__ import annotations

from typing import Any

from torch import nn

from latentheads.latents.alignments.options import AlignmentOptions
from latentheads.latents.alignments.priors import MixturePrior
from latentheads.models import LanguageModel, Translation, make_prior
from tests.tiny import ADAPTIVE, KINDS, SOURCE_TYPES, TARGET_TYPES, jiggle, latent_logits, sizes

ALIGNED_KINDS = (*KINDS, "adaptive")

SHAPES = {
    "one head": AlignmentOptions(1, 1, "independent", 5),
    "two heads": AlignmentOptions(1, 2, "independent", 5),
    "two blocks": AlignmentOptions(2, 1, "cascaded", 5),
    "chain": AlignmentOptions(1, 1, "chain", 5),
}
SOFT = {
    "soft": AlignmentOptions(1, 1, "soft", 5),
    "two soft blocks": AlignmentOptions(2, 2, "soft", 5),
}
MIXTURE = {
    "mixture": AlignmentOptions(1, 1, MixturePrior(3), 5),
    "mixture of two heads": AlignmentOptions(1, 2, MixturePrior(3), 5),
}
WINDOWED = {
    "window of two heads": AlignmentOptions(1, 2, "independent", 5, window=2),
    "window of two blocks": AlignmentOptions(2, 1, "cascaded", 5, window=1),
    "window of a chain": AlignmentOptions(1, 1, "chain", 5, window=2),
}
"""Of a language model alone."""


def aligned(
    options: AlignmentOptions | None, size: float = 0.5, kind: str = "translation", **more: Any
) -> Any:
    """A model in float64; the same seed gives the same network below its alignments.

    Of the kind "adaptive" it is a language model with an adaptive softmax of three bands.
    """
    if kind == "adaptive":
        more = {**ADAPTIVE, **more}
    prior, blocks = make_prior(more.pop("prior", "delta")), more.pop("blocks", "none")
    types = more.pop("source_types", SOURCE_TYPES), TARGET_TYPES
    latents = [latent_logits(prior, blocks), *([options] if options else [])]
    if kind == "translation":
        model: Any = Translation(*types, sizes(**more), latents)
    else:
        model = LanguageModel(TARGET_TYPES, sizes(**more), latents)
    return jiggle(model, size).double().eval()


def telling(shape: str) -> Any:
    """A model whose prior says little of where its heads point, and whose words say much."""
    model = aligned(SHAPES[shape], size=0.0)
    for block in model.alignments.blocks:
        jiggle(block, 0.3)
        nn.init.normal_(block.lexicon.weight)
    return model.requires_grad_(False)
