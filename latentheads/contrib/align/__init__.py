"""Word alignment of two texts: hidden Markov models of both directions, trained to agree."""

from typing import TYPE_CHECKING

from latentheads.lazy import lazy_names

if TYPE_CHECKING:
    from latentheads.contrib.align.aligner import WordAligner as WordAligner
    from latentheads.contrib.align.api import AlignedText as AlignedText
    from latentheads.contrib.align.api import project as project
    from latentheads.contrib.align.dictionary import read_dictionary as read_dictionary
    from latentheads.contrib.align.dictionary import write_dictionary as write_dictionary
    from latentheads.contrib.align.kept import load_aligner as load_aligner
    from latentheads.contrib.align.kept import save_aligner as save_aligner
    from latentheads.contrib.align.networks import align_by_networks as align_by_networks
    from latentheads.contrib.align.projection import ProjectedSpan as ProjectedSpan
    from latentheads.contrib.align.projection import Span as Span
    from latentheads.contrib.align.projection import characters_of_spans as characters_of_spans
    from latentheads.contrib.align.projection import spans_of_characters as spans_of_characters
    from latentheads.contrib.align.projection import spans_of_tags as spans_of_tags
    from latentheads.contrib.align.projection import tags_of_spans as tags_of_spans
    from latentheads.contrib.align.training import AlignerOptions as AlignerOptions

MODULES = {
    "AlignedText": "contrib.align.api",
    "AlignerOptions": "contrib.align.training",
    "ProjectedSpan": "contrib.align.projection",
    "Span": "contrib.align.projection",
    "WordAligner": "contrib.align.aligner",
    "align_by_networks": "contrib.align.networks",
    "characters_of_spans": "contrib.align.projection",
    "load_aligner": "contrib.align.kept",
    "project": "contrib.align.api",
    "read_dictionary": "contrib.align.dictionary",
    "save_aligner": "contrib.align.kept",
    "spans_of_characters": "contrib.align.projection",
    "spans_of_tags": "contrib.align.projection",
    "tags_of_spans": "contrib.align.projection",
    "write_dictionary": "contrib.align.dictionary",
}
"""The module of every public name."""

__all__ = [*MODULES]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, MODULES)
