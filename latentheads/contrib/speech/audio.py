"""Loads the filterbank features of audio files, with limits on their duration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from latentheads.contrib.speech.features import FRAME_SECONDS, WINDOW_SECONDS, Filterbank
from latentheads.contrib.speech.waveform import read_header, read_waveform


@dataclass(frozen=True)
class AudioOptions:
    """How audio files are read.

    Attributes:
        filterbank: The filterbank that computes the frames.
        max_seconds: Maximum duration of an utterance; 0: no limit.
        folder: Folder of the temporary file of frames; None: the system's.
    """

    filterbank: Filterbank
    max_seconds: float = 30.0
    folder: Path | None = None


def validate_header(path: Path, audio_options: AudioOptions) -> None:
    """Validates an audio file by its header; the samples are not read.

    Raises:
        ValueError: It cannot be read, is too long, or its sampling rate is not supported.
    """
    duration, sample_rate = read_header(path)
    _check_seconds(duration, audio_options.max_seconds)
    audio_options.filterbank.check(sample_rate)


def _check_seconds(duration: float, max_seconds: float) -> None:
    if 0 < max_seconds < duration:
        raise ValueError(f"{duration:,.6g} s of sound, more than max_seconds {max_seconds:g}")


def load_features(
    path: Path, audio_options: AudioOptions, min_frames: int = 1, allow_silence: bool = True
) -> NDArray[np.float16]:
    """Computes the filterbank frames of an audio file.

    Args:
        path: The file.
        audio_options: How it is read.
        min_frames: Minimum number of frames.
        allow_silence: Whether it may be silent; its frames are then all 0.

    Raises:
        ValueError: It cannot be read, is too short or too long, or is silent though it must not be.
    """
    _check_seconds(read_header(path)[0], audio_options.max_seconds)  # before all of it is read
    waveform = read_waveform(path)
    frames = audio_options.filterbank.frames(waveform)
    if len(frames) < min_frames:
        min_seconds = WINDOW_SECONDS + FRAME_SECONDS * (min_frames - 1)
        raise ValueError(f"{waveform.duration:.6g} s of sound, less than {min_seconds:.6g} s")
    if waveform.is_silent and not allow_silence:
        raise ValueError("it is silent")
    return frames


def load_features_for_run(
    path: Path, filterbank: Filterbank, max_seconds: float
) -> NDArray[np.float16]:
    """Computes the frames of an audio file with the filterbank that a run was trained with.

    Args:
        path: The file.
        filterbank: The run's filterbank.
        max_seconds: Maximum duration; 0: no limit.

    Raises:
        ValueError: As for `load_features`, or it is silent, or its sampling rate is too low.
    """
    (_, sample_rate), min_rate = read_header(path), 2 * filterbank.high_freq
    if sample_rate < min_rate:
        raise ValueError(
            f"its sampling rate is {sample_rate:,} Hz: the run uses frequencies up to "
            f"{filterbank.high_freq:,} Hz and needs at least {min_rate:,} samples a second"
        )
    return load_features(path, AudioOptions(filterbank, max_seconds), allow_silence=False)


class AudioReader:
    """Loads the frames of audio files and caches those of the last one.

    A file comes several times in a row if it has texts in several languages.
    """

    def __init__(self, audio_options: AudioOptions) -> None:
        self.audio_options = audio_options
        self._last: tuple[Path, NDArray[np.float16]] | None = None

    def load_features(
        self, path: Path, min_frames: int = 1, allow_silence: bool = True
    ) -> NDArray[np.float16]:
        """Computes the frames of a file; see `load_features`."""
        if self._last is None or self._last[0] != path:
            self._last = path, load_features(path, self.audio_options, min_frames, allow_silence)
        return self._last[1]
