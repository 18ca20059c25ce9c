"""The program that prepares corpora: one line where it cannot."""

from __future__ import annotations

import os
import re
import urllib.request
from pathlib import Path

import pytest

from latentheads.experiments.studies.prepare import CORPORA, RECORDED
from tests.experiments.programs import assert_one_line, assert_refused, inside


def test_every_corpus_is_prepared_by_its_name(tmp_path: Path) -> None:
    for name in CORPORA:
        done = inside("prepare.py", name, str(tmp_path / "gone"), "--out", str(tmp_path / name))
        assert_one_line(done, "prepare.py")
        assert re.search(rf"there is no (folder )?{tmp_path / 'gone'}[:,]", done.stderr)
    assert not list(tmp_path.iterdir())
    assert set(RECORDED) <= set(CORPORA)


@pytest.mark.parametrize("name", CORPORA)
def test_a_corpus_that_cannot_be_fetched_is_left(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")  # where nobody answers
    monkeypatch.setattr(urllib.request, "_opener", None)  # made with the proxies of its first use
    _speak_nothing(tmp_path / "bin", monkeypatch)
    done = inside("prepare.py", name, "--out", str(tmp_path / "data" / name))
    assert done.returncode == 1
    assert re.fullmatch(r"fetching https://\S+\n", done.stdout)
    assert re.fullmatch(
        r"prepare\.py: error: cannot fetch https://\S+: .*refused.*; fetch it by other means, and "
        rf"give it as the source; nothing is in {tmp_path}/data/{name}\n",
        done.stderr,
    )
    assert not list((tmp_path / "data").iterdir())


def _speak_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts an espeak-ng on the path that only has a version."""
    folder.mkdir()
    (folder / "espeak-ng").write_text("#!/bin/sh\necho 1.0\n")
    (folder / "espeak-ng").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("words", "."), "unknown corpus 'words': choose from digits, "),
        (("digits", ".", "."), "digits is made of one source, got 2"),
        (("digits", "--out", "x", ".", "."), "digits is made of one source, got 2"),
        ((), "the following arguments are required: corpus\n"),
    ],
)
def test_what_cannot_be_prepared_is_refused(words: tuple[str, ...], message: str) -> None:
    assert_refused("prepare.py", *words, says=message)
