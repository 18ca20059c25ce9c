"""Log-mel frames of sound, as Kaldi computes them, each utterance normalised.

Kaldi's conventions: 25 ms every 10 ms, Povey's window, pre-emphasis of .97, no dither, samples in
the range of 16 bits. Each coefficient is then taken less its mean over the utterance and over its
standard deviation, as fairseq S2T does (Wang et al. 2020, https://arxiv.org/abs/2010.05171).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from latentheads.checks import check_least
from latentheads.corpora.speech.sound import Sound
from latentheads.packages import need_package

if TYPE_CHECKING:
    from kaldi_native_fbank import FbankOptions, OnlineFbank

__all__ = ["FRAME_SECONDS", "WINDOW_SECONDS", "Filterbank", "log_mel", "normalise"]

FRAME_SECONDS = 0.01
"""Seconds from the beginning of a frame to that of the next."""

WINDOW_SECONDS = 0.025

FEWEST_BINS = 3
"""Coefficients that Kaldi makes."""

LOWEST = 20.0
"""Hertz where the lowest filter begins."""

FULL_SCALE = 32768.0
"""The range of samples of 16 bits, which Kaldi reads; those of soundfile are at most 1."""

LEAST_VARIANCE = 1e-10
"""A smaller variance is that of a coefficient that never changes: it becomes 0."""


@dataclass(frozen=True)
class Filterbank:
    """The filters by which sound becomes frames.

    They lie at the same frequencies whatever the sampling rate, so that files of several
    rates may stand side by side and nothing is resampled.

    Attributes:
        bins: Coefficients of a frame.
        top: Hertz where the highest filter ends: at most half the lowest sampling rate.
    """

    bins: int = 80
    top: int = 7600

    def __post_init__(self) -> None:
        check_least(vars(self), bins=FEWEST_BINS)
        if not self.top > LOWEST:
            raise ValueError(f"top_frequency must be more than {LOWEST:.0f} Hz, got {self.top}")

    def frames(self, sound: Sound) -> NDArray[np.float16]:
        """The frames of a sound, normalised.

        Raises:
            ValueError: Its sampling rate does not do; see `check`.
        """
        self.check(sound.rate)
        return normalise(log_mel(sound, self.bins, self.top)).astype(np.float16)

    def check(self, rate: int) -> None:
        """Refuses a sampling rate of which there are no such frames.

        Raises:
            ValueError: It is too low for the highest filter, or leaves a filter nothing to hear.
        """
        if rate < 2 * self.top:
            raise ValueError(
                f"its sampling rate of {rate:,} Hz holds frequencies up to {rate // 2:,} Hz: "
                f"use top_frequency {rate // 2 - 200}, got {self.top}"
            )
        _make_bank(rate, self.bins, self.top)


def log_mel(
    sound: Sound, bins: int = Filterbank.bins, top: float = Filterbank.top
) -> Float[np.ndarray, "frame bin"]:
    """Kaldi's log-mel filterbank; a sound shorter than a window has no frame.

    Args:
        sound: The sound.
        bins: Filters.
        top: Hertz where the highest filter ends.

    Raises:
        ValueError: There are too many filters: one lies between two frequencies of the sound.
    """
    bank = _make_bank(sound.rate, bins, top)
    bank.accept_waveform(sound.rate, (sound.samples * np.float32(FULL_SCALE)).tolist())
    bank.input_finished()
    frames = [bank.get_frame(place) for place in range(bank.num_frames_ready)]
    return np.array(frames, np.float32).reshape(len(frames), bins)


def _make_bank(rate: int, bins: int, top: float) -> OnlineFbank:
    """Kaldi's filters, of which none may lie between two frequencies of its transform."""
    package = need_package("kaldi_native_fbank")
    options = _make_options(package.FbankOptions(), rate, bins, top)
    try:
        return package.OnlineFbank(options)
    except (ValueError, RuntimeError) as reason:
        raise ValueError(
            f"bins must be fewer at a sampling rate of {rate:,} Hz, got {bins}"
        ) from reason


def _make_options(options: FbankOptions, rate: int, bins: int, top: float) -> FbankOptions:
    options.frame_opts.samp_freq = float(rate)
    options.frame_opts.dither = 0.0  # the same sound has the same frames
    options.frame_opts.frame_shift_ms = 1000 * FRAME_SECONDS
    options.frame_opts.frame_length_ms = 1000 * WINDOW_SECONDS
    options.frame_opts.snip_edges = True
    options.mel_opts.num_bins = bins
    options.mel_opts.low_freq = LOWEST
    options.mel_opts.high_freq = float(top)
    return options


def normalise(
    frames: Float[np.ndarray, "frame bin"],
) -> Float[np.ndarray, "frame bin"]:
    """Each coefficient less its mean over the utterance, over its standard deviation."""
    exact = frames.astype(np.float64)  # rounding would be blown up where nothing changes
    away = exact - exact.mean(0, keepdims=True) if len(exact) else exact
    scale = np.sqrt(np.maximum((away**2).mean(0), LEAST_VARIANCE)) if len(exact) else 1.0
    return (away / scale).astype(np.float32)
