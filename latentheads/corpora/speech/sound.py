"""Files of sound: samples and their rate, whatever libsndfile reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from latentheads.packages import need_package

__all__ = ["ENDINGS", "Sound", "read_rate", "read_seconds", "read_sound"]

ENDINGS = ("wav", "flac", "ogg", "opus", "mp3")
"""Endings of files of sound; others are read too where a table names them."""

LOUDEST = 1e9
"""A sample of sound is at most 1, and in some files 2^15; the energy of this one still fits."""


@dataclass(frozen=True)
class Sound:
    """One channel of sound.

    Attributes:
        samples: Between -1 and 1.
        rate: Samples a second.
    """

    samples: Float[np.ndarray, " sample"]
    rate: int

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return len(self.samples) / self.rate

    @property
    def silent(self) -> bool:
        """Whether it never moves."""
        return not len(self.samples) or bool((self.samples == self.samples[0]).all())


def read_sound(path: str | Path) -> Sound:
    """Reads a file of wav, FLAC, Ogg Vorbis, Opus, MP3, ...; of several channels their mean.

    Raises:
        ValueError: It cannot be read, or holds what is no sound.
    """
    with _opened(path) as file:
        samples, rate = file.read(dtype="float32", always_2d=True), file.samplerate
    if not np.isfinite(samples).all():
        raise ValueError("its samples are not all numbers")
    if (largest := float(np.abs(samples).max(initial=0))) > LOUDEST:
        raise ValueError(f"its samples must lie between -1 and 1, and one is {largest:.3g}")
    return Sound(samples.mean(1, dtype=np.float32), rate)


def read_seconds(path: str | Path) -> float:
    """How long a file of sound lasts, as its head says it; nothing else of it is read.

    Raises:
        ValueError: It cannot be read.
    """
    with _opened(path) as file:
        seconds: float = file.frames / file.samplerate
    return seconds


def read_rate(path: str | Path) -> int:
    """Samples a second of a file of sound; nothing else of it is read.

    Raises:
        ValueError: It cannot be read.
    """
    with _opened(path) as file:
        rate: int = file.samplerate
    return rate


@contextmanager
def _opened(path: str | Path) -> Iterator[Any]:
    """A file of sound, open while it is read."""
    package = need_package("soundfile")
    if not Path(path).is_file():  # a pipe would never end
        raise ValueError("it is no file" if Path(path).exists() else "there is no such file")
    if not Path(path).stat().st_size:  # libsndfile would say of some that they do not exist
        raise ValueError("it is an empty file")
    try:
        with package.SoundFile(str(path)) as file:
            yield file
    except (RuntimeError, OSError, TypeError) as reason:
        said = " ".join(str(reason).split()).rpartition(": ")[2]
        raise ValueError(f"it cannot be read as sound: {said}") from reason
