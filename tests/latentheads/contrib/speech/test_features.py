"""Frames are Kaldi's, held against its arithmetic in numpy, and against another library."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from latentheads.contrib.speech.features import Filterbank, frame_seconds, log_mel, normalise
from latentheads.contrib.speech.waveform import Waveform
from tests.latentheads.contrib.speech.sounds import make_noise

EPSILON = np.finfo(np.float32).eps


def mel(hertz: NDArray[np.float64] | float) -> NDArray[np.float64]:
    return np.asarray(1127.0 * np.log(1.0 + np.asarray(hertz) / 700.0))


def reference(sound: Waveform, bins: int, top: float) -> NDArray[np.float64]:
    """Kaldi's log-mel filterbank: frame by frame, filter by filter."""
    x = sound.samples.astype(np.float64) * 2**15
    window, shift = round(0.025 * sound.sample_rate), round(0.01 * sound.sample_rate)
    size = 1 << (window - 1).bit_length()
    taper = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / (window - 1))) ** 0.85
    edges = np.linspace(mel(20.0), mel(top), bins + 2)
    heard = mel(np.arange(size // 2) * sound.sample_rate / size)
    logs = []
    for start in range(0, len(x) - window + 1, shift):
        frame = x[start : start + window]
        frame = frame - frame.mean()
        frame = frame - 0.97 * np.concatenate([frame[:1], frame[:-1]])
        power = np.abs(np.fft.rfft(frame * taper, size))[: size // 2] ** 2
        energies = []
        for left, centre, right in zip(edges, edges[1:], edges[2:], strict=False):
            up, down = (heard - left) / (centre - left), (right - heard) / (right - centre)
            energies.append(float(np.maximum(np.minimum(up, down), 0) @ power))
        logs.append(np.log(np.maximum(energies, EPSILON)))
    return np.array(logs)


@pytest.mark.parametrize(
    ("rate", "bins", "top"), [(8000, 40, 3800), (16000, 80, 7600), (44100, 80, 7600)]
)
def test_frames_are_those_of_kaldi(rate: int, bins: int, top: int) -> None:
    sound = Waveform(make_noise(0.3, rate=rate), rate)
    computed_log_mel, expected = log_mel(sound, bins, top), reference(sound, bins, top)
    assert computed_log_mel.shape == expected.shape == (28, bins)
    assert np.abs(computed_log_mel - expected).max() < 1e-3


@pytest.mark.parametrize("rate", [8000, 11025, 16000, 22050, 44100, 48000])
def test_the_shift_of_frames_is_a_whole_number_of_samples(rate: int) -> None:
    frames = log_mel(Waveform(make_noise(20.0, rate=rate), rate), 7, 3800)
    seconds = len(frames) * frame_seconds(rate)
    assert 20 - 0.025 <= seconds <= 20 - 0.025 + frame_seconds(rate)


def test_each_coefficient_has_mean_0_and_deviation_1() -> None:
    frames = normalise(log_mel(Waveform(make_noise(0.5), 8000), 7, 3800))
    assert np.abs(frames.mean(0)).max() < 1e-6
    assert np.abs(frames.std(0) - 1).max() < 1e-6


def test_what_never_changes_becomes_0() -> None:
    frames = np.full((5, 3), -15.94, np.float32)
    assert not normalise(frames).any()
    assert normalise(frames[:0]).shape == (0, 3)


def test_loudness_changes_nothing() -> None:
    samples = make_noise(0.3)
    filterbank = Filterbank(7, 3800)
    loud, soft = (filterbank.frames(Waveform(samples * f, 8000)) for f in (np.float32(1), 0.25))
    assert np.abs(loud.astype(float) - soft).max() < 2e-2


def test_a_rate_that_holds_too_little_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"8,000 Hz .* option data.top_frequency to 3800, got 7600"
    ):
        Filterbank().frames(Waveform(make_noise(0.1), 8000))
    with pytest.raises(ValueError, match="top_frequency must be more than 20 Hz, got 20"):
        Filterbank(high_freq=20)


def test_coefficients_that_kaldi_has_no_filters_for_are_refused() -> None:
    with pytest.raises(ValueError, match="bins must be at least 3, got 2"):
        Filterbank(bins=2)
    Filterbank(bins=3).check(16000)
    Filterbank(bins=128).check(22050)
    message = "^bins must be fewer at a sampling rate of 16,000 Hz, got 128$"
    with pytest.raises(ValueError, match=message):
        Filterbank(bins=128).frames(Waveform(make_noise(0.1, rate=16000), 16000))


def test_a_sound_shorter_than_a_window_has_no_frame() -> None:
    assert log_mel(Waveform(make_noise(0.024), 8000), 7, 3800).shape == (0, 7)
