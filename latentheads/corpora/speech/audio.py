"""Files of sound to frames, within limits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from latentheads.corpora.speech.features import FRAME_SECONDS, WINDOW_SECONDS, Filterbank
from latentheads.corpora.speech.sound import read_rate, read_seconds, read_sound

__all__ = ["AudioOptions", "AudioReader", "check_head", "load_features", "load_features_for_run"]


@dataclass(frozen=True)
class AudioOptions:
    """How files of sound are read.

    Attributes:
        filterbank: The filters by which sound becomes frames.
        max_seconds: The longest utterance; 0: any.
        folder: Where frames wait until they are in a cache; None: where the system puts such files.
    """

    filterbank: Filterbank
    max_seconds: float = 30.0
    folder: Path | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.max_seconds < float("inf"):
            raise ValueError(f"max_seconds must be at least 0 (0: any), got {self.max_seconds}")


def check_head(path: Path, audio_options: AudioOptions) -> None:
    """Refuses a file by its head; nothing else of it is read.

    Args:
        path: The file.
        audio_options: How it is to be read.

    Raises:
        ValueError: It cannot be read, is too long, or its sampling rate does not do.
    """
    _check_seconds(path, audio_options.max_seconds)
    audio_options.filterbank.check(read_rate(path))


def _check_seconds(path: Path, most: float) -> None:
    seconds = read_seconds(path)
    if 0 < most < seconds:
        raise ValueError(f"{seconds:,.6g} s of sound, more than max_seconds {most:g}")


def load_features(
    path: Path, audio_options: AudioOptions, fewest: int = 1, silence: bool = True
) -> NDArray[np.float16]:
    """The frames of a file.

    Args:
        path: The file.
        audio_options: How it is read.
        fewest: Frames that it must have.
        silence: Whether it may be silent; its frames are then all 0.

    Raises:
        ValueError: It cannot be read, or is too short or too long, or silent where it must not be.
    """
    _check_seconds(path, audio_options.max_seconds)
    sound = read_sound(path)
    frames = audio_options.filterbank.frames(sound)
    if len(frames) < fewest:
        least = WINDOW_SECONDS + FRAME_SECONDS * (fewest - 1)
        raise ValueError(f"{sound.seconds:.6g} s of sound, less than {least:.6g} s")
    if sound.silent and not silence:
        raise ValueError("it is silent")
    return frames


def load_features_for_run(
    path: Path, filterbank: Filterbank, max_seconds: float
) -> NDArray[np.float16]:
    """The frames of a file for a run, which was trained on such frames and reads no others.

    Args:
        path: The file.
        filterbank: The filters by which sound becomes frames there.
        max_seconds: The longest file; 0: any.

    Raises:
        ValueError: As for `load_features`, or it is silent, or its sampling rate is
            less than the run needs.
    """
    rate, least = read_rate(path), 2 * filterbank.top
    if rate < least:
        raise ValueError(
            f"its sampling rate is {rate:,} Hz: the run hears up to {filterbank.top:,} Hz and "
            f"needs at least {least:,} samples a second"
        )
    return load_features(path, AudioOptions(filterbank, max_seconds), silence=False)


class AudioReader:
    """Hears files; one that comes several times in a row, with its text in several languages, once.

    Args:
        audio_options: How files are read.
    """

    def __init__(self, audio_options: AudioOptions) -> None:
        self.audio_options = audio_options
        self._heard: tuple[Path, NDArray[np.float16]] | None = None

    def load_features(
        self, path: Path, fewest: int = 1, silence: bool = True
    ) -> NDArray[np.float16]:
        """The frames of a file; see `load_features`."""
        if self._heard is None or self._heard[0] != path:
            self._heard = path, load_features(path, self.audio_options, fewest, silence)
        return self._heard[1]
