"""Files of sound: whatever is in them has an answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from latentheads.contrib.speech.audio import AudioReader, load_features
from latentheads.contrib.speech.waveform import read_waveform
from tests.latentheads.contrib.speech.sounds import RATE, SMALL, make_noise, write_sound


@pytest.mark.parametrize("ending", ["wav", "flac", "ogg", "opus", "mp3"])
def test_many_formats_are_read(tmp_path: Path, ending: str) -> None:
    path = write_sound(tmp_path / f"a.{ending}", make_noise(0.5), 16000)
    assert load_features(path, SMALL).shape[1] == 7
    assert read_waveform(path).sample_rate == 16000


@pytest.mark.parametrize("ending", ["wav", "aiff", "au", "mp3", "w64", "rf64"])
def test_a_file_that_is_cut_is_no_shorter_sound(tmp_path: Path, ending: str) -> None:
    path = write_sound(tmp_path / f"a.{ending}", make_noise(2), 16000)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(
        ValueError,
        match=r"^it is cut, or its header is wrong: 0\.\d+ s of sound, (1|0\.9\d*) s in its header",
    ):
        read_waveform(path)


@pytest.mark.parametrize("ending", ["ogg", "opus"])
def test_a_file_of_pages_does_not_end_within_one(tmp_path: Path, ending: str) -> None:
    path = write_sound(tmp_path / f"a.{ending}", make_noise(5), 16000)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"^it is cut, or has other bytes after its sound$"):
        read_waveform(path)


def test_a_voc_file_that_is_cut_is_no_shorter_sound(tmp_path: Path) -> None:
    path = write_sound(tmp_path / "a.voc", make_noise(2))
    assert read_waveform(path).duration == 2
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match=r"^it is cut, or has other bytes after its sound$"):
        read_waveform(path)


@pytest.mark.parametrize(("ending", "size"), [("w64", slice(16, 24)), ("rf64", slice(20, 28))])
def test_a_size_of_64_bits_that_is_not_known_is_no_cut(
    tmp_path: Path, ending: str, size: slice
) -> None:
    path = write_sound(tmp_path / f"a.{ending}", make_noise(0.5))
    content = bytearray(path.read_bytes())
    for unknown in (bytes(8), b"\xff" * 8):
        content[size] = unknown
        path.write_bytes(content)
        assert read_waveform(path).duration == 0.5


def test_tags_before_an_mp3_without_a_header_are_no_sound(tmp_path: Path) -> None:
    path = tmp_path / "a.mp3"
    soundfile.write(path, make_noise(1), 16000, bitrate_mode="CONSTANT")
    frames = path.read_bytes()
    frames = frames[frames.index(frames[:2], 1) :]  # the first one is the header
    for tags in (b"", b"ID3\x03\0\0\0\0\x40\0" + bytes(2**13)):
        path.write_bytes(tags + frames)
        assert read_waveform(path).duration == pytest.approx(0.5, abs=0.1)


def test_a_header_that_was_written_before_the_sound_does_not_know_its_size(tmp_path: Path) -> None:
    path = write_sound(tmp_path / "a.wav", make_noise(0.5))
    header, sound = path.read_bytes()[:40], path.read_bytes()[44:]
    path.write_bytes(header + b"\xff\xff\xff\xff" + sound)
    assert read_waveform(path).duration == 0.5


def test_channels_are_averaged(tmp_path: Path) -> None:
    one, two = make_noise(0.1, 1), make_noise(0.1, 2)
    path = tmp_path / "a.wav"
    soundfile.write(path, np.stack([one, two], 1), RATE, "FLOAT")
    assert np.allclose(read_waveform(path).samples, (one + two) / 2, atol=1e-7)


def test_silence_is_heard_as_nothing_unless_it_must_not_be(tmp_path: Path) -> None:
    for offset in (0.0, 0.25):
        path = write_sound(tmp_path / "a.wav", np.full(800, offset, np.float32))
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


@pytest.mark.parametrize(("factor", "largest"), [(1e16, r"\de\+15"), (1e38, r"\de\+37")])
def test_samples_far_from_those_of_sound_are_refused(
    tmp_path: Path, factor: float, largest: str
) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, make_noise(0.1) * np.float32(factor), RATE, "FLOAT")
    message = rf"its samples must lie between -1 and 1, and one is [\d.]*{largest}$"
    with pytest.raises(ValueError, match=message):
        load_features(path, SMALL)
    soundfile.write(path, make_noise(0.1) * np.float32(1e9), RATE, "FLOAT")
    assert np.isfinite(load_features(path, SMALL)).all()


def write_samples(path: Path, samples: Any) -> None:
    soundfile.write(path, np.asarray(samples, np.float32), RATE, "FLOAT")


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: write_samples(path, make_noise(0)), r"^0 s of sound, less than 0\.025 s"),
        (lambda path: write_samples(path, make_noise(0.024875)), r"^0\.024875 s of sound, less th"),
        (Path.touch, r"^it is an empty file$"),
        (lambda path: path.write_bytes(b"RIFF"), r"it cannot be read as sound: \w"),
        (lambda path: path.write_bytes(b"This is text."), r"it cannot be read as sound: \w"),
        (lambda path: write_samples(path, [np.nan] * 800), "its samples are not all numbers"),
        (Path.mkdir, "^it is not a file$"),
        (lambda _: None, "^there is no such file$"),
    ],
)
def test_what_is_no_sound_is_named_for_what_it_is(
    tmp_path: Path, write: Callable[[Path], object], message: str
) -> None:
    write(tmp_path / "a.wav")
    with pytest.raises(ValueError, match=message):
        load_features(tmp_path / "a.wav", SMALL)


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
