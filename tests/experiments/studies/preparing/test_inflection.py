"""Inflection, letter by letter: the files of the shared task, written as parallel text."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from latentheads.experiments.studies.preparing.inflection import (
    ORIGIN,
    prepare_inflection,
    write_pair,
)

LINES = {
    "all/task1/moon-train-high": ["ab\tabs\tN;PL", "Rad fahren\tfährt Rad\tV;IND;3"],
    "all/task1/moon-dev": ["ö\töd\tADJ\r"],
    "posterior_lookup/task1/moon-uncovered-test": ["c\tcs\tN;PL", "d\td\tN"],
    "posterior_lookup/task2/moon-uncovered-test": ["x\ty\tN"],
    "all/task1/mars-train-high": ["x\ty\tN"],
}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Of one language that has all parts, and of one that has not."""
    for name, lines in LINES.items():
        path = tmp_path / "set" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return tmp_path / "set"


def test_a_language_becomes_parallel_text(files: Path, tmp_path: Path) -> None:
    source, lines = tmp_path / "set.tar.gz", list[str]()
    with tarfile.open(source, "w:gz") as file:
        file.add(files, "set")
    out = prepare_inflection(source, tmp_path / "data" / "sigmorphon", lines.append)
    written = {path.name: path.read_text(encoding="utf-8") for path in (out / "moon").iterdir()}
    assert written == {
        "train.lemma": "<N> <PL> a b\n<V> <IND> <3> R a d ▁ f a h r e n\n",
        "train.form": "a b s\nf ä h r t ▁ R a d\n",
        "valid.lemma": "<ADJ> ö\n",
        "valid.form": "ö d\n",
        "test.lemma": "<N> <PL> c\n<N> d\n",
        "test.form": "c s\nd\n",
    }
    assert {path.name for path in out.iterdir()} == {"moon", "README.txt", ORIGIN.mark}
    assert "names none" in (out / "README.txt").read_text(encoding="utf-8")
    assert "languages: 1 (no licence is named: for research)" in lines[0]
    prepare_inflection(tmp_path / "gone", out, lines.append)
    assert lines[1] == f"{out} is prepared already"


def test_files_that_are_not_those_of_the_task_are_refused(files: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (files / "posterior_lookup/task1/moon-uncovered-test").write_text("a\tb\n")
    with pytest.raises(ValueError, match=r"moon-uncovered-test, line 1: lemma, form and features"):
        prepare_inflection(files, out)
    with pytest.raises(ValueError, match="has no files LANGUAGE-train-high, LANGUAGE-dev, "):
        prepare_inflection(files / "posterior_lookup", out)
    with pytest.raises(ValueError, match=r"there is no .*gone"):
        prepare_inflection(tmp_path / "gone", out)
    for name in list(LINES)[:3]:
        (files / name.replace("moon", "german")).write_text("a\tb\tN\n")
    (files / "all/task1/moon-dev").unlink()
    with pytest.raises(ValueError, match=r"german-train-high and its company are not the files"):
        prepare_inflection(files, out)
    assert {path.name for path in tmp_path.iterdir()} == {"set"}
    with pytest.raises(ValueError, match="is there already and holds something else"):
        prepare_inflection(files, files)
    (tmp_path / "link").symlink_to(out)
    with pytest.raises(ValueError, match="is there already and holds something else"):
        prepare_inflection(files, tmp_path / "link")


def test_a_pair_keeps_every_letter() -> None:
    assert write_pair("a-b c\tc'\tV.PTCP;PST") == ("<V.PTCP> <PST> a - b ▁ c", "c '")
    with pytest.raises(ValueError, match="the line: lemma, form and features are needed"):
        write_pair("a\t\tN")
