"""Stamps: nine languages, a text beside each sound, split so that no text is in two parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from latentheads.contrib.speech.table import Utterance
from latentheads.experiments.studies.preparing.recordings import prepare_recordings
from latentheads.experiments.studies.preparing.stamps import INSTALLED, STAMPS, find_stamps
from tests.experiments.studies.preparing.packages import digest_of, known_by
from tests.experiments.studies.preparing.tables import read_tables
from tests.latentheads.contrib.speech.sounds import write_noise

SAID = {
    "animals/cat": "A cat.\nfr.utf8=Un  chat !\nro.utf8=O pisică.\n",
    "animals/birds/owl": "An owl.\r\nfr.utf8=Une chouette.\nde.utf8=Eine Eule.\n",
    "symbols/two": "The number 2.\nfr.utf8=Le nombre 2.\n",
}


@pytest.fixture
def stamps(tmp_path: Path) -> Path:
    """A package's folder, with sound that nobody needs and sound that has no text."""
    root = tmp_path / "unpacked" / INSTALLED
    for index, (name, text) in enumerate(SAID.items()):
        write_noise(root / f"{name}_desc_fr.ogg", 0.7, index)
        (root / f"{name}.txt").write_text(text, encoding="utf-8", newline="")
    write_noise(root / "animals/cat_desc_ro.ogg", 0.6, 5)
    write_noise(root / "animals/cat_desc_xx.ogg", 0.1, 6)
    write_noise(root / "animals/yak_desc_fr.ogg", 0.5, 7)
    return tmp_path / "unpacked"


def read_all(out: Path) -> dict[str, Utterance]:
    rows = [item for part in read_tables(out).values() for item in part]
    sounds = (row.audio.relative_to(out / "sound").with_suffix("") for row in rows)
    return {f"{sound}.{row.target}": row for sound, row in zip(sounds, rows, strict=True)}


def test_each_sound_has_its_text_and_its_english(stamps: Path, tmp_path: Path) -> None:
    corpus, lines = known_by(STAMPS, digest_of(find_stamps([stamps]).files)), list[str]()
    out = prepare_recordings(corpus, [stamps], tmp_path / "data" / "stamps", lines.append)
    utterances = read_all(out)
    assert {name: utterance.text for name, utterance in utterances.items()} == {
        "fr/animals/cat.fr": "Un chat",
        "fr/animals/cat.en": "A cat.",
        "fr/animals/birds/owl.fr": "Une chouette",
        "fr/animals/birds/owl.en": "An owl.",
        "ro/animals/cat.ro": "O pisică",
        "ro/animals/cat.en": "A cat.",
    }
    owl = utterances["fr/animals/birds/owl.en"]
    assert (owl.source, owl.target, owl.domain) == ("fr", "en", "animals")
    sound = stamps / INSTALLED / "animals/birds/owl_desc_fr.ogg"
    assert owl.audio.read_bytes() == sound.read_bytes()
    assert lines[0].endswith("2 left out: 2 without text in words")
    assert lines[1:] == ["fr: 2 recordings, 0.0 min, 4 words", "ro: 1 recordings, 0.0 min, 2 words"]
    assert "GPL-2" in (out / "README.txt").read_text()
    prepare_recordings(corpus, [tmp_path / "gone"], out, lines.append)
    assert lines[3:] == [f"{out} is prepared already"]
