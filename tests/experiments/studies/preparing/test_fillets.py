"""Fish Fillets: dialogues of levels beside their sound, from several packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from latentheads.contrib.speech.table import Utterance
from latentheads.experiments.studies.preparing.fillets import FILLETS, find_fillets
from latentheads.experiments.studies.preparing.recordings import prepare_recordings
from tests.experiments.studies.preparing.packages import digest_of, known_by
from tests.experiments.studies.preparing.tables import read_tables
from tests.latentheads.contrib.speech.sounds import write_noise

CZECH = r"""
-- dialogStr("not")
dialogId("ship", "font_small", "What is \"this\"?")
dialogStr(
    "Co je to, \"loď\"?")
dialogId("growl", "", "Grr.")

dialogId("hours", "font_big", "It took %1 hours.")
dialogStr("Trvalo to %1 hodin.")
dialogId("old", "font_big", "Old.")
dialogStr("Starý " .. what)
"""
GERMAN = 'dialogId("ship", "font_small", "What?")\ndialogStr("Was ist das?")\n'
DUTCH = 'dialogId("ship", "font_small", "What?")\ndialogStr("Wat is dit?")\n'


@pytest.fixture
def packages(tmp_path: Path) -> list[Path]:
    """Scripts, and sound of two languages; two levels have a dialogue of one name."""
    game = "usr/share/games/fillets-ng"
    scripts = {"cs": CZECH, "en": CZECH, "de": GERMAN, "nl": DUTCH, "de_CH": DUTCH, "eo": DUTCH}
    for language, text in scripts.items():
        path = tmp_path / "data" / game / "script" / "deep" / f"dialogs_{language}.lua"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    shared = tmp_path / "data" / game / "script" / "share" / "bore_dialogs_cs.lua"
    shared.parent.mkdir()
    shared.write_text('dialogId("ship", "font_big", "Boring.")\ndialogStr("Nuda.")\n')
    for index, name in enumerate(("ship", "growl", "hours", "old")):
        write_noise(tmp_path / "cs" / game / "sound/deep/cs" / f"{name}.ogg", 1, index)
    write_noise(tmp_path / "cs" / game / "sound/share/bore/cs/ship.ogg", 1, 5)
    write_noise(tmp_path / "cs" / game / "sound/share/splash.ogg", 1, 6)
    write_noise(tmp_path / "nl" / game / "sound/deep/nl/ship.ogg", 1, 7)
    return [tmp_path / name for name in ("data", "cs", "nl")]


def texts(utterances: list[Utterance]) -> set[tuple[str, str, str, str, str]]:
    return {(u.source, u.target, u.text, u.speaker, u.domain) for u in utterances}


def test_dialogues_have_their_translations(packages: list[Path], tmp_path: Path) -> None:
    digest, lines = digest_of(find_fillets(packages).files), list[str]()
    out = prepare_recordings(known_by(FILLETS, digest), packages, tmp_path / "out", lines.append)
    tables = [item for part in read_tables(out).values() for item in part]
    assert texts(tables) == {
        ("cs", "cs", "Co je to loď", "small", "deep"),
        ("cs", "en", 'What is "this"?', "small", "deep"),
        ("cs", "de", "Was ist das?", "small", "deep"),
        ("cs", "nl", "Wat is dit?", "small", "deep"),
        ("nl", "nl", "Wat is dit", "small", "deep"),
        ("nl", "en", 'What is "this"?', "small", "deep"),
        ("nl", "de", "Was ist das?", "small", "deep"),
        ("nl", "cs", 'Co je to, "loď"?', "small", "deep"),
        ("cs", "cs", "Nuda", "big", "share"),
    }
    assert lines[0].endswith("3 left out: 3 without text in words")
    assert lines[1:] == ["cs: 2 recordings, 0.0 min, 5 words", "nl: 1 recordings, 0.0 min, 3 words"]


def test_both_languages_of_a_dialogue_are_in_one_part(packages: list[Path], tmp_path: Path) -> None:
    corpus = known_by(FILLETS, digest_of(find_fillets(packages).files))
    out = prepare_recordings(corpus, packages, tmp_path / "out")
    parts = read_tables(out)
    assert [
        part
        for part, one_part in parts.items()
        if {u.source for u in one_part if u.domain == "deep"}
    ] in (["train"], ["valid"], ["test"])
    with pytest.raises(ValueError, match="cs holds 5 files that are not those of fillets-ng-data,"):
        prepare_recordings(FILLETS, packages[1:2], tmp_path / "other")
