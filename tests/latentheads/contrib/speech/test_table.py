"""Tables of utterances: what is wrong is named with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from latentheads.contrib.speech.table import Utterance, find_utterances, read_utterances
from tests.latentheads.contrib.speech.sounds import make_noise, write_sound, write_table


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    return write_sound(tmp_path / "s" / "a.wav", make_noise(0.1))


def test_a_table_is_read_with_the_columns_that_it_has(tmp_path: Path, sound: Path) -> None:
    row = ["x", "s/a.wav", " viel \u2028 Text ", "17", "theo", "en", "de"]
    names = "id audio tgt_text n_frames speaker src_lang tgt_lang"
    path = write_table(tmp_path / "train.tsv", [row], names)
    (utterance,) = read_utterances(path)
    assert utterance == Utterance(
        sound, "viel \u2028 Text", f"{path}, line 2", "en", "de", "theo", domain=""
    )


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "has no utterance"),
        ([["x", "s/a.wav"]], "line 2: 2 columns, 3 in the first line"),
        ([["x", "s/b.wav", "b"]], "line 2: there is no file .*b.wav$"),
        ([["x", "f.zip:81:640", "b"]], "f.zip:81:640: byte ranges of a file are not supported$"),
        ([["x", "", "b"]], "line 2: there is no file"),
        ([["x", "s/a.wav", "b"], ["x", "s/a.wav", "c"]], "line 3: id 'x' is that of line 2 too"),
    ],
)
@pytest.mark.usefixtures("sound")
def test_a_broken_line_is_named(tmp_path: Path, rows: list[list[str]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(read_utterances(write_table(tmp_path / "train.tsv", rows)))


def test_the_first_line_names_the_columns(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"line 1 .*there is no tgt_text"):
        list(read_utterances(write_table(tmp_path / "train.tsv", [], "id audio text")))


def test_a_folder_has_text_beside_each_sound(tmp_path: Path, sound: Path) -> None:
    with pytest.raises(ValueError, match=r"a\.wav has no text: there is no a\.txt beside it"):
        list(read_utterances(sound.parent))
    text = sound.with_suffix(".txt")
    text.write_text("one two\n", encoding="utf-8")
    assert list(read_utterances(tmp_path)) == [Utterance(sound, "one two", str(sound))]
    text.write_text("one\ntwo\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"a\.txt has 2 lines: one is expected"):
        list(read_utterances(tmp_path))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="has no audio file"):
        list(read_utterances(tmp_path / "empty"))


def test_a_part_is_a_table_or_a_folder(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    assert find_utterances(tmp_path, "valid") == tmp_path / "dev"
    (tmp_path / "dev.tsv.gz").touch()
    assert find_utterances(tmp_path, "valid") == tmp_path / "dev.tsv.gz"
    write_table(tmp_path / "dev.tsv", [])
    assert find_utterances(tmp_path, "valid") == tmp_path / "dev.tsv"
    assert find_utterances(tmp_path, "test", "dev") == tmp_path / "dev.tsv"
    with pytest.raises(ValueError, match=r"has no train\.tsv or train\.tsv\.gz; it has dev"):
        find_utterances(tmp_path, "train")
