"""What is not needed to state and fit p(y, z | x) and q(z | x, y); the core imports none of it.

====================  ==========================================================================
:mod:`.align`         Word alignment of texts: ``lh.align``.
:mod:`.circuits`      Circuits: a posterior over subsets of heads of a network on prompts.
:mod:`.heads`         Analysis of heads: recording, measures, importance, relevance, roles.
:mod:`.hf`            Networks of Hugging Face with latent heads: ``lh.latent``.
:mod:`.page`          The report page: ``lh.contrib.page.report``.
:mod:`.plot`          Figures: ``lh.plot``.
:mod:`.speech`        Speech: corpora of audio, the front end that reads it, transcripts.
:mod:`.uncertainty`   Uncertainty of predictions, calibration, ensembles.
====================  ==========================================================================

A part is loaded when it is first used.
"""

from typing import TYPE_CHECKING

from latentheads.lazy import lazy_names

if TYPE_CHECKING:
    from latentheads.contrib import align as align
    from latentheads.contrib import circuits as circuits
    from latentheads.contrib import heads as heads
    from latentheads.contrib import hf as hf
    from latentheads.contrib import page as page
    from latentheads.contrib import plot as plot
    from latentheads.contrib import speech as speech
    from latentheads.contrib import uncertainty as uncertainty

PARTS = ("align", "circuits", "heads", "hf", "page", "plot", "speech", "uncertainty")

__all__ = [*PARTS]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, {}, {name: f"contrib.{name}" for name in PARTS})
