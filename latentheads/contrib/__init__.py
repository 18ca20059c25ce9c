"""What is not needed to state and fit p(y, z | x) and q(z | x, y); the core imports none of it.

====================  ==========================================================================
:mod:`.align`         Word alignment of texts: ``lh.align``.
:mod:`.heads`         Analysis of heads: recording, measures, importance, relevance, roles.
:mod:`.hf`            Networks of Hugging Face with latent heads: ``lh.latent``.
:mod:`.page`          The report page: ``lh.report``.
:mod:`.plot`          Figures: ``lh.plot``.
:mod:`.speech`        Speech: corpora of audio, the front end that reads it, transcripts.
:mod:`.uncertainty`   Uncertainty of predictions, calibration, ensembles.
====================  ==========================================================================

A part is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from latentheads.contrib import align as align
    from latentheads.contrib import heads as heads
    from latentheads.contrib import hf as hf
    from latentheads.contrib import page as page
    from latentheads.contrib import plot as plot
    from latentheads.contrib import speech as speech
    from latentheads.contrib import uncertainty as uncertainty

__all__ = ["align", "heads", "hf", "page", "plot", "speech", "uncertainty"]


def __getattr__(name: str) -> ModuleType:
    """Loads a part when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    """The parts."""
    return sorted(__all__)
