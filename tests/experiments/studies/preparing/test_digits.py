"""Connected digits: planned the same everywhere, and prepared once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from latentheads.contrib.speech.table import read_utterances
from latentheads.contrib.speech.waveform import read_waveform
from latentheads.experiments.studies.preparing import digits
from latentheads.experiments.studies.preparing.digits import WORDS, prepare_digits
from tests.experiments.studies.preparing.packages import digest_of as digest_of_files
from tests.latentheads.contrib.speech.sounds import make_noise, write_sound

SPEAKERS = ("ann", "bob")


@pytest.fixture
def recordings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two speakers, no two of whose recordings are alike, and few utterances."""
    monkeypatch.setattr(digits, "UTTERANCES", {"test": 3, "valid": 2, "train": 4})
    monkeypatch.setattr(digits, "INDEX", {"train": range(2, 3), "valid": range(1, 2), "test": [0]})
    every = [(digit, who, take) for who in SPEAKERS for digit in range(10) for take in range(3)]
    for seed, (digit, who, take) in enumerate(every):
        sound = make_noise(0.03 + 0.01 * digit + 0.002 * take, seed)
        write_sound(tmp_path / "set" / f"{digit}_{who}_{take}.wav", sound)
    return tmp_path / "set"


def digest_of(folder: Path) -> str:
    return digest_of_files({path.name: path for path in folder.iterdir()})


def test_digits_are_connected(recordings: Path, tmp_path: Path) -> None:
    digest, lines = digest_of(recordings), list[str]()
    out = prepare_digits(recordings, tmp_path / "data" / "digits", lines.append, digest)
    parts = {part: list(read_utterances(out / f"{part}.tsv")) for part in digits.UTTERANCES}
    assert {part: len(one_part) for part, one_part in parts.items()} == digits.UTTERANCES
    for part, take in (("train", 2), ("valid", 1), ("test", 0)):
        assert {item.speaker for item in parts[part]} == set(SPEAKERS)
        for utterance in parts[part]:
            indexes = [WORDS.index(word) for word in utterance.text.split()]
            names = [f"{digit}_{utterance.speaker}_{take}.wav" for digit in indexes]
            expected = np.concatenate([read_waveform(recordings / name).samples for name in names])
            assert 3 <= len(indexes) <= 6
            assert read_waveform(utterance.audio).samples == pytest.approx(expected, abs=2**-15)
    assert "CC BY-SA 4.0" in lines[0]
    assert "CC BY-SA 4.0" in (out / "README.txt").read_text(encoding="utf-8")
    prepare_digits(tmp_path / "gone", out, lines.append, digest)
    assert lines[1] == f"{out} is prepared already"


def test_held_out_strings_are_none_of_training() -> None:
    plans = digits._plan_parts(["a", "b"])
    held_out = {plan.digits for part in ("valid", "test") for plan in plans[part]}
    assert not held_out & {plan.digits for plan in plans["train"]}
    for part, first, last in (("test", 0, 4), ("valid", 5, 9), ("train", 10, 49)):
        takes = {take for plan in plans[part] for take in plan.takes}
        assert (min(takes), max(takes)) == (first, last)
    assert plans["test"][0].digits == (1, 3, 1, 7, 0, 0)  # the same everywhere


def test_other_recordings_are_refused(recordings: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds 60 recordings that are not the 3,000"):
        prepare_digits(recordings, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(ValueError, match="is there already and holds something else"):
        prepare_digits(recordings, recordings)
    with pytest.raises(ValueError, match=r"there is no .*nowhere"):
        prepare_digits(tmp_path / "nowhere", tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty holds no such recordings as the 3,000 of"):
        prepare_digits(tmp_path / "empty", tmp_path / "out")
    (tmp_path / "text.tar").write_text("text")
    with pytest.raises(ValueError, match="cannot be read as a tar file"):
        prepare_digits(tmp_path / "text.tar", tmp_path / "out")
