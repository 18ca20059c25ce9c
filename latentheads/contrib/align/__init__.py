"""Word alignment of two texts: hidden Markov models of both directions, trained to agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentheads.lazy import lazy_names

if TYPE_CHECKING:
    from latentheads.contrib.align.aligner import WordAligner as WordAligner
    from latentheads.contrib.align.api import AlignedText as AlignedText
    from latentheads.contrib.align.kept import load_aligner as load_aligner
    from latentheads.contrib.align.kept import save_aligner as save_aligner
    from latentheads.contrib.align.training import AlignerOptions as AlignerOptions

PLACES = {
    "AlignedText": "contrib.align.api",
    "AlignerOptions": "contrib.align.training",
    "WordAligner": "contrib.align.aligner",
    "load_aligner": "contrib.align.kept",
    "save_aligner": "contrib.align.kept",
}
"""The module of every public name."""

__all__ = [*PLACES]

__getattr__, __dir__ = lazy_names(__name__, PLACES)
