"""Spoken Multi30k, by an espeak-ng that says the same noise whatever it is given."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from latentheads.contrib.speech.waveform import read_waveform
from latentheads.experiments.studies.preparing import spoken_multi30k
from latentheads.experiments.studies.preparing.spoken_multi30k import (
    VOICES,
    prepare_spoken_multi30k,
)
from tests.experiments.studies.preparing.tables import read_tables
from tests.latentheads.contrib.speech.sounds import make_noise, write_sound

CAPTIONS = {
    "train": [("A dog.", "Ein Hund."), ("two  men", "Zwei Männer"), ("A cat.", "Eine Katze.")],
    "val": [("A  bird flies.", "Ein Vogel fliegt."), ("2 men!", "Ja.")],
    "test_2016_flickr": [("a DOG", "Hund.")],
}

SPEAKER = """#!/bin/sh
[ "$1" = --version ] && echo "eSpeak NG text-to-speech: 1.0  Data at: nowhere" && exit
[ -e "{stop}" ] && echo "Error:  no voice" >&2 && exit 1
[ "$#" = 9 ] && cp "{speech}" "$8" && echo "$2 $4 $6 $(cat)" >> "{log}"
"""


@pytest.fixture
def captions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of captions, and an espeak-ng that comes first on the path."""
    folder, program = tmp_path / "captions", tmp_path / "bin" / "espeak-ng"
    for item in (folder, program.parent):
        item.mkdir()
    for part, pairs in CAPTIONS.items():
        for side, language in enumerate(("en", "de")):
            text = "".join(pair[side] + "\n" for pair in pairs)
            (folder / f"{part}.{language}").write_text(text, encoding="utf-8")
    speech = write_sound(tmp_path / "speech.wav", make_noise(0.5, rate=22050), 22050)
    log, stop = tmp_path / "log", tmp_path / "stop"
    program.write_text(SPEAKER.format(speech=speech, log=log, stop=stop))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return folder


def digest_of(captions: Path) -> str:
    total = hashlib.sha256()
    for part, stem in (("test", "test_2016_flickr"), ("train", "train"), ("valid", "val")):
        for language in ("de", "en"):
            text = (captions / f"{stem}.{language}").read_bytes().removesuffix(b"\n")
            total.update(f"{part}.{language}".encode() + hashlib.sha256(text).digest())
    return total.hexdigest()


def test_captions_are_spoken(captions: Path, tmp_path: Path) -> None:
    digest, messages = digest_of(captions), list[str]()
    out = prepare_spoken_multi30k(captions, tmp_path / "out", messages.append, digest, sentences=2)
    parts = read_tables(out)
    assert {part: [(u.target, u.text) for u in one_part] for part, one_part in parts.items()} == {
        "train": [("en", "two men"), ("de", "Zwei Männer")],  # a dog is in test, a cat is third
        "valid": [("en", "A bird flies"), ("de", "Ein Vogel fliegt."), ("de", "Ja.")],
        "test": [("en", "a DOG"), ("de", "Hund.")],
    }
    lines = (tmp_path / "log").read_text().splitlines()
    assert [line.split(" ", 3)[3] for line in lines] == [
        "a DOG",
        "A bird flies.",
        "2 men!",
        "two men",
    ]
    for line, (english, *_) in zip(lines, (parts["test"], parts["valid"]), strict=False):
        voice = next(voice for voice in VOICES if voice.name == english.speaker)
        assert line.startswith(f"{voice.name} {voice.speed} {voice.pitch} ")
        assert english.domain in ("quiet", "noise")
        assert len(read_waveform(english.audio).samples) == 22050 // 2
    assert (
        messages[0]
        == f"espeak-ng 1.0 speaks 4 captions in {tmp_path / 'out'}.speech-{messages[0][-8:]}"
    )
    assert messages[1].endswith(
        "1 of train, 2 of valid, 1 of test, 0 min of speech, made by espeak-ng 1.0"
    )
    assert {path.name for path in tmp_path.iterdir()} == {
        "bin",
        "captions",
        "log",
        "out",
        "speech.wav",
    }
    prepare_spoken_multi30k(captions, out, messages.append, digest, sentences=2)
    assert messages[-1] == f"{out} is prepared already"
    with pytest.raises(ValueError, match="holds something else"):
        prepare_spoken_multi30k(captions, out, digest=digest, sentences=3)


def test_noise_is_always_the_same() -> None:
    samples = make_noise(0.2)
    first, again, other = (spoken_multi30k._add_noise(samples, name) for name in ("a", "a", "b"))
    assert (first == again).all()
    assert not (first == other).all()
    assert np.abs(first).max() <= 1
    assert 0 < float(np.std(first - samples)) < 0.5 * float(samples.std())
    assert not spoken_multi30k._add_noise(np.zeros(3, np.float32), "a").any()
