"""Russian: sentences that are read and descriptions of pictures, told apart by their domain."""

from __future__ import annotations

from pathlib import Path

import pytest

from latentheads.corpora.preparing.recordings import prepare_recordings
from latentheads.corpora.preparing.russian import RUSSIAN, find_russian
from tests.latentheads.corpora.preparing.packages import digest_of, known_by
from tests.latentheads.corpora.preparing.tables import read_tables
from tests.latentheads.corpora.speech.sounds import write_noise

READ = '( ru_1 "Она, завела длань +, - и пошла." )\n( ru_2 "Год 1905." )\n( ru_4 "Нет." )\n'


def test_both_domains_are_read(tmp_path: Path) -> None:
    voice, stamps = tmp_path / "voice", tmp_path / "stamps"
    for name in ("ru_1", "ru_2", "ru_3"):
        write_noise(voice / "deep" / "wav" / f"{name}.wav", 2, int(name[-1]))
    (voice / "deep" / "etc").mkdir()
    (voice / "deep" / "etc" / "txt.done.data").write_text(READ, encoding="utf-8")
    write_noise(stamps / "food/egg_desc_ru.ogg", 0.7, 4)
    write_noise(stamps / "food/egg_desc_fr.ogg", 0.7, 5)
    (stamps / "food/egg.txt").write_text("An egg.\nru.utf8=Яйцо.\n", encoding="utf-8")
    sources, told = [voice, stamps], list[str]()
    with pytest.raises(
        ValueError, match=r"voice .*stamps holds 6 files that are not those of fest"
    ):
        prepare_recordings(RUSSIAN, sources, tmp_path / "out")
    corpus = known_by(RUSSIAN, digest_of(find_russian(sources).files))
    out = prepare_recordings(corpus, sources, tmp_path / "out", told.append)
    found = {
        (u.text, u.source, u.target, u.domain) for part in read_tables(out).values() for u in part
    }
    assert found == {
        ("Она завела длань и пошла", "ru", "ru", "read"),
        ("Яйцо", "ru", "ru", "captions"),
    }
    assert told[0].endswith("2 left out: 2 without text in words")
    assert told[1:] == [
        "captions: 1 recordings, 0.0 min, 1 words",
        "read: 1 recordings, 0.0 min, 5 words",
    ]
