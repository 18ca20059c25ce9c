"""Russian: sentences that are read, descriptions of pictures, prompts; told apart by domain."""

from __future__ import annotations

from pathlib import Path

import pytest

from latentheads.experiments.studies.preparing.recordings import prepare_recordings
from latentheads.experiments.studies.preparing.russian import RUSSIAN, find_russian
from tests.experiments.studies.preparing.packages import digest_of, known_by
from tests.experiments.studies.preparing.tables import read_tables
from tests.latentheads.contrib.speech.sounds import write_noise

READ = '( ru_1 "Она, завела длань +, - и пошла." )\n( ru_2 "Год 1905." )\n( ru_4 "Нет." )\n'


PROMPTS = """; Prompts
digits/5: пять
monkeys: [sound of monkeys]
goodbye:  До свидания.
letters/w: w
press-1: Нажмите 1
gone: Нет такого
"""


def test_three_domains_are_read(tmp_path: Path) -> None:
    voice, stamps, exchange = tmp_path / "voice", tmp_path / "stamps", tmp_path / "exchange"
    for name in ("ru_1", "ru_2", "ru_3"):
        write_noise(voice / "deep" / "wav" / f"{name}.wav", 2, int(name[-1]))
    (voice / "deep" / "etc").mkdir()
    (voice / "deep" / "etc" / "txt.done.data").write_text(READ, encoding="utf-8")
    write_noise(stamps / "food/egg_desc_ru.ogg", 0.7, 4)
    write_noise(stamps / "food/egg_desc_fr.ogg", 0.7, 5)
    (stamps / "food/egg.txt").write_text("An egg.\nru.utf8=Яйцо.\n", encoding="utf-8")
    for name in ("digits/5", "monkeys", "goodbye", "letters/w", "press-1", "without-a-line"):
        write_noise(exchange / "sounds/ru_RU_f_Voice" / f"{name}.wav", 1.3, 6, rate=8000)
    sources, lines = [voice, stamps, exchange], list[str]()
    with pytest.raises(ValueError, match=r"^no core-sounds-ru.txt in what is given: give it, too"):
        prepare_recordings(RUSSIAN, sources, tmp_path / "out")
    (exchange / "core-sounds-ru.txt").write_text(PROMPTS, encoding="utf-8")
    with pytest.raises(
        ValueError, match=r"voice .*stamps .*exchange holds 12 files that are not those of fest"
    ):
        prepare_recordings(RUSSIAN, sources, tmp_path / "out")
    corpus = known_by(RUSSIAN, digest_of(find_russian(sources).files))
    out = prepare_recordings(corpus, sources, tmp_path / "out", lines.append)
    actual = {
        (u.text, u.source, u.target, u.domain) for part in read_tables(out).values() for u in part
    }
    assert actual == {
        ("Она завела длань и пошла", "ru", "ru", "read"),
        ("Яйцо", "ru", "ru", "captions"),
        ("пять", "ru", "ru", "telephone"),
        ("До свидания", "ru", "ru", "telephone"),
    }
    assert lines[0].endswith("6 left out: 6 without text in words")
    assert lines[1:] == [
        "captions: 1 recordings, 0.0 min, 1 words",
        "read: 1 recordings, 0.0 min, 5 words",
        "telephone: 2 recordings, 0.0 min, 3 words",
    ]
