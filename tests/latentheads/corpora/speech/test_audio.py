"""Files of sound: whatever is in them has an answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from latentheads.corpora.speech.audio import AudioReader, load_features
from latentheads.corpora.speech.waveform import read_waveform
from tests.latentheads.corpora.speech.sounds import RATE, SMALL, make_noise, write_sound


@pytest.mark.parametrize("ending", ["wav", "flac", "ogg", "opus", "mp3"])
def test_many_formats_are_read(tmp_path: Path, ending: str) -> None:
    path = write_sound(tmp_path / f"a.{ending}", make_noise(0.5), 16000)
    assert load_features(path, SMALL).shape[1] == 7
    assert read_waveform(path).sample_rate == 16000


def test_channels_are_averaged(tmp_path: Path) -> None:
    one, two = make_noise(0.1, 1), make_noise(0.1, 2)
    path = tmp_path / "a.wav"
    soundfile.write(path, np.stack([one, two], 1), RATE, "FLOAT")
    assert np.allclose(read_waveform(path).samples, (one + two) / 2, atol=1e-7)


def test_silence_is_heard_as_nothing_unless_it_must_not_be(tmp_path: Path) -> None:
    path = write_sound(tmp_path / "a.wav", np.zeros(800, np.float32))
    assert not load_features(path, SMALL).any()
    with pytest.raises(ValueError, match="it is silent"):
        load_features(path, SMALL, allow_silence=False)


def test_what_is_too_long_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_sound(tmp_path / "a.wav", make_noise(2.1))
    monkeypatch.setattr(soundfile.SoundFile, "read", None)
    with pytest.raises(ValueError, match=r"2\.1 s of sound, more than max_seconds 2$"):
        load_features(path, SMALL)


@pytest.mark.parametrize("seconds", [0, 0.02, 0.024875])
def test_what_is_too_short_is_refused(tmp_path: Path, seconds: float) -> None:
    path = write_sound(tmp_path / "a.wav", make_noise(seconds))
    with pytest.raises(ValueError, match=rf"^{seconds} s of sound, less than 0\.025 s"):
        load_features(path, SMALL)


@pytest.mark.parametrize("ending", ["wav", "mp3"])
def test_an_empty_file_is_called_so(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.{ending}"
    path.touch()
    with pytest.raises(ValueError, match=r"^it is an empty file$"):
        load_features(path, SMALL)


@pytest.mark.parametrize("content", [b"RIFF", b"This is text."])
def test_what_is_no_sound_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"it cannot be read as sound: \w"):
        load_features(path, SMALL)


def test_samples_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, np.full(800, np.nan), RATE, "FLOAT")
    with pytest.raises(ValueError, match="its samples are not all numbers"):
        load_features(path, SMALL)


@pytest.mark.parametrize(("factor", "largest"), [(1e16, r"\de\+15"), (1e38, r"\de\+37")])
def test_samples_far_from_those_of_sound_are_refused(
    tmp_path: Path, factor: float, largest: str
) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, make_noise(0.1) * np.float32(factor), RATE, "FLOAT")
    said = rf"its samples must lie between -1 and 1, and one is [\d.]*{largest}$"
    with pytest.raises(ValueError, match=said):
        load_features(path, SMALL)
    soundfile.write(path, make_noise(0.1) * np.float32(1e9), RATE, "FLOAT")
    assert np.isfinite(load_features(path, SMALL)).all()


def test_what_is_no_file_is_named_for_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^it is no file$"):
        load_features(tmp_path, SMALL)
    with pytest.raises(ValueError, match=r"^there is no such file$"):
        load_features(tmp_path / "gone", SMALL)


def test_a_file_that_comes_again_is_not_read_again(tmp_path: Path) -> None:
    one = write_sound(tmp_path / "one.wav", make_noise(0.2, 1))
    two = write_sound(tmp_path / "two.wav", make_noise(0.3, 2))
    ear = AudioReader(SMALL)
    frames = ear.load_features(one)
    assert ear.load_features(one) is frames
    assert len(ear.load_features(two)) > len(frames)
    one.unlink()
    with pytest.raises(ValueError, match="no such file"):
        ear.load_features(one)
