"""Sentences spoken by espeak-ng, with the time at which it starts each word."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentheads.packages import MissingPackageError

RATE = 16000
"""Samples a second, which Whisper takes."""

RETRIEVAL, UTF8, END_PAUSE = 1, 1, 0x1000
SPEED, PITCH = 1, 3
LIST_END, WORD = 0, 1


class _Identifier(ctypes.Union):
    _fields_ = (
        ("number", ctypes.c_int),
        ("name", ctypes.c_char_p),
        ("string", ctypes.c_char * 8),
    )


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("identifier", _Identifier),
    )


_CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event)
)


@dataclass
class _Synthesis:
    """What espeak-ng gives to its callback: samples, and word starts by position in the text."""

    rate: int
    samples: list[NDArray[np.int16]] = field(default_factory=list)
    starts: dict[int, float] = field(default_factory=dict)

    def __call__(self, samples: Any, number: int, events: Any) -> int:
        index = 0
        while events[index].type != LIST_END:
            event = events[index]
            if event.type == WORD:
                self.starts.setdefault(event.text_position - 1, event.sample / self.rate)
            index += 1
        if samples and number:
            self.samples.append(np.ctypeslib.as_array(samples, (number,)).copy())
        return 0


@cache
def _load() -> tuple[Any, int]:
    """The library, and its samples a second."""
    try:
        loader = import_module("espeakng_loader")
    except ImportError as error:
        reason = "speech of espeak-ng needs espeakng-loader: pip install espeakng-loader"
        raise MissingPackageError(reason) from error
    library = ctypes.CDLL(loader.get_library_path())
    rate = library.espeak_Initialize(RETRIEVAL, 0, loader.get_data_path().encode(), 0)
    return library, rate


def speak(
    words: Sequence[str], voice: str, speed: int, pitch: int
) -> tuple[NDArray[np.float32], list[float]]:
    """Speaks words; returns 16,000 samples a second and the start of each word.

    The start is not a number where espeak-ng speaks a word as one with the last.

    Args:
        words: The words of a sentence.
        voice: An accent and a variant, as ``en-us+m3``.
        speed: Words a minute.
        pitch: From 0 to 99.
    """
    library, rate = _load()
    if library.espeak_SetVoiceByName(voice.encode()):
        raise ValueError(f"espeak-ng has no voice {voice}")
    library.espeak_SetParameter(SPEED, speed, 0)
    library.espeak_SetParameter(PITCH, pitch, 0)
    synthesis = _Synthesis(rate)
    callback = _CALLBACK(synthesis)  # kept until the end: the library has only its address
    library.espeak_SetSynthCallback(callback)
    content = " ".join(words).encode()
    flags = UTF8 | END_PAUSE
    library.espeak_Synth(content, len(content) + 1, 0, 1, 0, flags, None, None)
    library.espeak_Synchronize()
    sound = np.concatenate(synthesis.samples) / 2**15
    spans = [match.span() for match in re.finditer(r"\S+", " ".join(words))]
    starts = [
        next((t for p, t in sorted(synthesis.starts.items()) if first <= p < last), np.nan)
        for first, last in spans
    ]
    common = np.gcd(RATE, rate)
    from scipy.signal import resample_poly  # slow to import

    return resample_poly(sound, RATE // common, rate // common).astype(np.float32), starts
