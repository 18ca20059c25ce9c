"""The program that prepares corpora: one line where it cannot."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from latentheads.experiments.prepare import CORPORA, RECORDED
from tests.experiments.programs import assert_one_line, inside


def test_every_corpus_is_prepared_by_its_name(tmp_path: Path) -> None:
    for name in CORPORA:
        done = inside("prepare.py", name, str(tmp_path / "gone"), "--out", str(tmp_path / name))
        assert_one_line(done, "prepare.py")
        assert re.search(rf"there is no (folder )?{tmp_path / 'gone'}[:,]", done.stderr)
    assert not list(tmp_path.iterdir())
    assert set(RECORDED) <= set(CORPORA)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("words", "."), "unknown corpus 'words': choose from digits, "),
        (("digits", ".", "."), "digits is made of one source, got 2"),
        (("stamps", ".", "--sentences", "3"), "--sentences is of spoken-multi30k, got stamps"),
        (("spoken-multi30k", ".", "--sentences", "0"), "--sentences must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_prepared_is_refused(words: tuple[str, ...], said: str) -> None:
    done = inside("prepare.py", *words)
    assert_one_line(done, "prepare.py")
    assert said in done.stderr
