"""Speech: audio files to frames, their corpora, and the front end of a network that reads them.

``--data speech`` reads a folder of audio files with their texts, as ``Speech`` does in Python;
``transcribe`` writes what is spoken. The core has frames, not sound: its tables of data classes,
vocabularies and front ends name what stands here, which is loaded when it is first needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from latentheads.contrib.speech.data import Speech as Speech
    from latentheads.contrib.speech.front_end import SpeechOptions as SpeechOptions
    from latentheads.contrib.speech.transcription import transcribe as transcribe

PLACES = {"Speech": "data", "SpeechOptions": "front_end", "transcribe": "transcription"}
"""The module of every public name."""

__all__ = ["Speech", "SpeechOptions", "transcribe"]


def __getattr__(name: str) -> Any:
    """Loads a public name when it is first used."""
    if name not in PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{PLACES[name]}"), name)


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
