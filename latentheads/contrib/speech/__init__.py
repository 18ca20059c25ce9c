"""Speech: audio files to frames, their corpora, and the front end of a network that reads them.

``--data speech`` reads a folder of audio files with their texts, as ``Speech`` does in Python;
``transcribe`` writes what is spoken. The core has frames, not sound: its tables of data classes,
vocabularies and front ends name what stands here, which is loaded when it is first needed.
"""

from typing import TYPE_CHECKING

from latentheads.lazy import lazy_names

if TYPE_CHECKING:
    from latentheads.contrib.speech.data import Speech as Speech
    from latentheads.contrib.speech.forced import make_forced_example as make_forced_example
    from latentheads.contrib.speech.front_end import SpeechOptions as SpeechOptions
    from latentheads.contrib.speech.time_errors import TimeErrors as TimeErrors
    from latentheads.contrib.speech.time_errors import word_time_errors as word_time_errors
    from latentheads.contrib.speech.timing import time_words as time_words
    from latentheads.contrib.speech.transcription import transcribe as transcribe

MODULES = {
    "Speech": "contrib.speech.data",
    "SpeechOptions": "contrib.speech.front_end",
    "TimeErrors": "contrib.speech.time_errors",
    "make_forced_example": "contrib.speech.forced",
    "time_words": "contrib.speech.timing",
    "transcribe": "contrib.speech.transcription",
    "word_time_errors": "contrib.speech.time_errors",
}
"""The module of every public name."""

__all__ = [*MODULES]


if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, MODULES)
