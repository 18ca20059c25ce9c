"""Kaldi's log-mel filterbank features, normalised by utterance.

Kaldi's conventions: windows of 25 ms every 10 ms, Povey window, pre-emphasis of .97, no dither,
16-bit sample range. Each coefficient is then normalised to mean 0 and variance 1 over the utterance
(utterance-level CMVN), as in fairseq S2T (Wang et al. 2020, https://arxiv.org/abs/2010.05171).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from latentheads.checks import check_least
from latentheads.contrib.speech.waveform import Waveform
from latentheads.packages import import_optional

if TYPE_CHECKING:
    from kaldi_native_fbank import OnlineFbank

FRAME_SECONDS = 0.01
"""Frame shift in seconds."""

WINDOW_SECONDS = 0.025
"""Window length in seconds."""

MIN_BINS = 3
"""Minimum number of mel bins in Kaldi."""

LOW_FREQ = 20.0
"""Lower edge of the lowest filter in Hertz."""

FULL_SCALE = 32768.0
"""Kaldi expects samples in the 16-bit range; those of soundfile lie in [-1, 1]."""

LEAST_VARIANCE = 1e-10
"""Lower bound of the variance, so that a constant coefficient becomes 0."""


@dataclass(frozen=True)
class Filterbank:
    """A log-mel filterbank.

    The filters have the same frequencies at every sampling rate, so that files of several rates can
    be mixed without resampling.

    Attributes:
        bins: Number of mel bins, the coefficients of a frame.
        high_freq: Upper edge of the highest filter in Hertz: at most half the lowest sampling rate.
    """

    bins: int = 80
    high_freq: int = 7600

    def __post_init__(self) -> None:
        check_least(vars(self), bins=MIN_BINS)
        if not self.high_freq > LOW_FREQ:
            raise ValueError(
                f"top_frequency must be more than {LOW_FREQ:.0f} Hz, got {self.high_freq}"
            )

    def frames(self, waveform: Waveform) -> NDArray[np.float16]:
        """Computes the normalised frames of a waveform."""
        self.check(waveform.sample_rate)
        return normalise(log_mel(waveform, self.bins, self.high_freq)).astype(np.float16)

    def check(self, sample_rate: int) -> None:
        """Validates a sampling rate.

        Raises:
            ValueError: It is too low for the highest filter, or a filter would be empty.
        """
        nyquist = sample_rate // 2
        if sample_rate < 2 * self.high_freq:
            raise ValueError(
                f"its sampling rate of {sample_rate:,} Hz holds frequencies up to {nyquist:,} Hz: "
                f"set the option data.top_frequency to {nyquist - 200}, got {self.high_freq}"
            )
        _make_fbank(sample_rate, self.bins, self.high_freq)


def frame_seconds(sample_rate: int) -> float:
    """The frame shift in seconds at a sampling rate: Kaldi's is a whole number of samples."""
    return int(FRAME_SECONDS * sample_rate) / sample_rate


def log_mel(
    waveform: Waveform, bins: int = Filterbank.bins, high_freq: float = Filterbank.high_freq
) -> Float[np.ndarray, "frame bin"]:
    """Kaldi's log-mel filterbank features; a waveform shorter than a window has no frame.

    Args:
        waveform: The waveform.
        bins: Number of mel bins.
        high_freq: Upper edge of the highest filter in Hertz.

    Raises:
        ValueError: There are too many bins: a filter would lie between two FFT frequencies.
    """
    fbank = _make_fbank(waveform.sample_rate, bins, high_freq)
    fbank.accept_waveform(
        waveform.sample_rate, (waveform.samples * np.float32(FULL_SCALE)).tolist()
    )
    fbank.input_finished()
    frames = [fbank.get_frame(index) for index in range(fbank.num_frames_ready)]
    return np.array(frames, np.float32).reshape(len(frames), bins)


def _make_fbank(sample_rate: int, bins: int, high_freq: float) -> OnlineFbank:
    """Makes Kaldi's filterbank; none of its filters may lie between two FFT frequencies."""
    package = import_optional("kaldi_native_fbank")
    options = package.FbankOptions()
    options.frame_opts.samp_freq = float(sample_rate)
    options.frame_opts.dither = 0.0  # deterministic
    options.frame_opts.frame_shift_ms = 1000 * FRAME_SECONDS
    options.frame_opts.frame_length_ms = 1000 * WINDOW_SECONDS
    options.frame_opts.snip_edges = True
    options.mel_opts.num_bins = bins
    options.mel_opts.low_freq = LOW_FREQ
    options.mel_opts.high_freq = float(high_freq)
    try:
        return package.OnlineFbank(options)
    except (ValueError, RuntimeError) as error:
        raise ValueError(
            f"bins must be fewer at a sampling rate of {sample_rate:,} Hz, got {bins}"
        ) from error


def normalise(
    frames: Float[np.ndarray, "frame bin"],
) -> Float[np.ndarray, "frame bin"]:
    """Normalises each coefficient to mean 0 and variance 1 over the utterance."""
    # In float32 the division would amplify the rounding error of a constant coefficient.
    values = frames.astype(np.float64)
    centred = values - values.mean(0, keepdims=True) if len(values) else values
    scale = np.sqrt(np.maximum((centred**2).mean(0), LEAST_VARIANCE)) if len(values) else 1.0
    return (centred / scale).astype(np.float32)
