"""Reads waveforms from audio files, in every format of libsndfile."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from latentheads.packages import import_optional

AUDIO_EXTENSIONS = ("wav", "flac", "ogg", "opus", "mp3")
"""File name extensions of audio files in a folder; a table may name others."""

MAX_AMPLITUDE = 1e9
"""Maximum amplitude: usually 1, in some files 2^15; at this one no energy overflows yet."""

CUT = re.compile(
    r"^ *(?:data|SSND|Data Size|riff|Riff size) *: (\d+) \(should be (\d+)\)$", re.MULTILINE
)
"""In libsndfile's log: wav, AIFF, AU, W64 or RF64 has fewer bytes than its header announces."""

CUT_SIGNS = ("Junk after the last page.", "Seems to be a truncated file.")
"""In its log: Ogg or Opus ends within a page, whose header has no duration; VOC is too short."""

TAGS = re.compile(r"^Length : (\d+)\nFound 'ID3' marker\.\n.*:\s(\d+)$", re.MULTILINE)
"""In its log: an MP3 begins with tags, which it takes for sound if no length is given."""

UNKNOWN_SIZE = 0x7FF00000
"""From this number of bytes on, a header has no true size, as of a stream."""

TOLERANCE = 0.1
"""Seconds by which the duration in a header may exceed the sound."""


@dataclass(frozen=True)
class Waveform:
    """One channel of audio."""

    samples: Float[np.ndarray, " sample"]
    sample_rate: int

    @property
    def duration(self) -> float:
        """The duration in seconds."""
        return len(self.samples) / self.sample_rate

    @property
    def is_silent(self) -> bool:
        """Whether all samples are equal."""
        return not len(self.samples) or bool((self.samples == self.samples[0]).all())


def read_waveform(path: str | Path) -> Waveform:
    """Reads an audio file (wav, FLAC, Ogg Vorbis, Opus, MP3, ...); channels are averaged.

    Raises:
        ValueError: The file cannot be read or is cut, which is not seen in rare formats such as
            NIST and AVR, or its samples are not finite or too large.
    """
    with _open_audio(path) as file:
        samples, sample_rate = file.read(dtype="float32", always_2d=True), file.samplerate
        announced, log = _announced_seconds(file), file.extra_info
    if any(sign in log for sign in CUT_SIGNS):
        raise ValueError("it is cut, or has other bytes after its sound")
    if len(samples) / sample_rate < announced - TOLERANCE:
        raise ValueError(
            f"it is cut, or its header is wrong: {len(samples) / sample_rate:.6g} s of sound, "
            f"{announced:.6g} s in its header"
        )
    if not np.isfinite(samples).all():
        raise ValueError("its samples are not all numbers")
    if (largest := float(np.abs(samples).max(initial=0))) > MAX_AMPLITUDE:
        raise ValueError(f"its samples must lie between -1 and 1, and one is {largest:.3g}")
    return Waveform(samples.mean(1, dtype=np.float32), sample_rate)


def read_header(path: str | Path) -> tuple[float, int]:
    """Reads the duration of an audio file in seconds, and its sampling rate, from its header."""
    with _open_audio(path) as file:
        return file.frames / file.samplerate, file.samplerate


def resample(sound: Waveform, rate: int) -> Float[np.ndarray, " sample"]:
    """The samples of a sound at another rate, the loudest of size 1 at most."""
    from scipy.signal import resample_poly  # slow to import

    common = np.gcd(rate, sound.sample_rate)
    samples = resample_poly(sound.samples, rate // common, sound.sample_rate // common)
    return (samples / max(1.0, float(np.abs(samples).max(initial=0)))).astype(np.float32)


def _announced_seconds(file: Any) -> float:
    """The duration that a header announces: libsndfile shortens that of a file that is cut."""
    seconds: float = file.frames / file.samplerate
    if tags := TAGS.search(file.extra_info):
        size, size_of_tags = map(int, tags.groups())
        return seconds * (size - size_of_tags) / size
    announced, present = map(int, cut.groups()) if (cut := CUT.search(file.extra_info)) else (1, 1)
    return seconds * announced / present if present and announced < UNKNOWN_SIZE else seconds


@contextmanager
def _open_audio(path: str | Path) -> Iterator[Any]:
    """Opens an audio file with soundfile."""
    package = import_optional("soundfile")
    if not Path(path).is_file():  # reading a pipe would never end
        raise ValueError("it is not a file" if Path(path).exists() else "there is no such file")
    if not Path(path).stat().st_size:  # libsndfile's own error says that it does not exist
        raise ValueError("it is an empty file")
    try:
        with package.SoundFile(str(path)) as file:
            yield file
    except (RuntimeError, OSError, TypeError) as error:
        message = " ".join(str(error).split()).rpartition(": ")[2]
        raise ValueError(f"it cannot be read as sound: {message}") from error
