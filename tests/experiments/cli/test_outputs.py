"""Where a program writes, tried before the work."""

from __future__ import annotations

import os
import sys
import tempfile
from io import BufferedRandom
from pathlib import Path

import pytest

from latentheads.experiments.cli.outputs import (
    check_distinct_files,
    check_output_file,
    make_output_folder,
    open_output,
)
from tests.experiments.programs import assert_refused


def test_a_folder_is_tried_and_what_is_there_stays(tmp_path: Path) -> None:
    out = make_output_folder(tmp_path / "a" / "b")
    assert list(out.iterdir()) == []
    (out / "table.md").write_text("kept")
    assert make_output_folder(out) == out
    assert (out / "table.md").read_text() == "kept"
    with pytest.raises(ValueError, match=r"^--out: cannot write .*table.md/c: Not a directory$"):
        make_output_folder(out / "table.md" / "c")


def test_an_output_is_opened_where_one_is_asked_for(tmp_path: Path) -> None:
    with open_output("alignments", None) as none:
        assert none is None
    with open_output("alignments", str(tmp_path / "links")) as file:
        assert file is not None
        file.write("0-0\n")
    assert (tmp_path / "links").read_text() == "0-0\n"
    with pytest.raises(ValueError, match=r"^--alignments: cannot write .*: No such"):  # noqa: SIM117
        with open_output("alignments", str(tmp_path / "nowhere" / "links")):
            pass


def test_no_text_is_called_as_what_is_compressed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"links\.gz: name a file without \.gz, it is text$"):
        check_output_file(tmp_path / "links.gz")


def test_no_file_is_called_as_standard_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = pytest.raises(ValueError, match=r"^--scores: cannot write -: name a file$")
    with refused:
        check_output_file("-", "--scores")
    with refused, open_output("scores", "-"):
        pass
    assert list(tmp_path.iterdir()) == []
    assert check_output_file("./-", "--scores") == tmp_path / "-"
    with open_output("scores", "./-") as file:
        assert file is not None
    assert [path.name for path in tmp_path.iterdir()] == ["-"]


def test_an_output_is_no_file_that_is_read_already(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "text.en"
    text.write_text("a line\n")
    refused = pytest.raises(ValueError, match=r"text.en: it is standard input too$")
    with text.open() as already:
        monkeypatch.setattr(sys, "stdin", already)
        with refused, open_output("alignments", str(text)):
            pass
    assert text.read_text() == "a line\n"


FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="it is Linux that has a disk always full")
def test_a_full_disk_is_told_once_and_with_the_file() -> None:
    def write(flush: bool) -> None:
        with open_output("alignments", str(FULL)) as file:
            assert file is not None
            file.write("0-0\n")
            if flush:
                file.flush()
            sys.exit(1)

    message = "^cannot write /dev/full: No space left on device$"
    with pytest.raises(OSError, match=message):
        write(flush=True)
    with pytest.raises(SystemExit):  # what a program ends by is not hidden by closing the file
        write(flush=False)


def test_a_file_is_tried_before_the_work(tmp_path: Path) -> None:
    check_output_file(tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match=r"^--out: cannot write .*/no/page.html: No such file"):
        check_output_file(tmp_path / "no" / "page.html")
    with pytest.raises(ValueError, match=r"^--out: cannot write .*: it is a folder$"):
        check_output_file(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"^--out: cannot write .*/file/x: Not a directory$"):
        check_output_file(tmp_path / "file" / "x")
    os.mkfifo(tmp_path / "pipe")  # who reads it is given nothing before the work
    assert check_output_file(tmp_path / "pipe") == tmp_path / "pipe"


@pytest.mark.parametrize("old", ["of yesterday", None])
def test_a_file_is_tried_without_a_change(old: str | None, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    if old is not None:
        out.write_text(old)
    check_output_file(out)
    assert (out.read_text() if out.exists() else None) == old


@pytest.mark.skipif(not FULL.exists(), reason="it is Linux that has a disk always full")
def test_an_output_on_a_full_disk_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(dir: Path) -> BufferedRandom:
        return open("/dev/full", "r+b")

    monkeypatch.setattr(tempfile, "TemporaryFile", fill)
    with pytest.raises(ValueError, match=r"^--out: cannot write .*: No space left on device$"):
        check_output_file(tmp_path / "page.html")
    with pytest.raises(ValueError, match=r"^--out: cannot write .*: No space left on device$"):
        make_output_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_written_where_a_link_leads(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    path = tmp_path / "there" / "page.html"
    (tmp_path / "link").symlink_to(path)
    assert check_output_file(tmp_path / "link") == path
    path.write_text("of yesterday")
    assert check_output_file(tmp_path / "link") == path


def test_what_a_file_holds_is_lost_to_what_is_written_alone(tmp_path: Path) -> None:
    kept = tmp_path / "links"
    kept.write_text("of yesterday\n")

    def fail() -> None:
        with open_output("alignments", str(kept)):
            raise ValueError("before the work")

    with pytest.raises(ValueError, match="before the work"):
        fail()
    assert kept.read_text() == "of yesterday\n"
    for text in ("0-0\n", ""):
        with open_output("alignments", str(kept)) as file:
            assert file is not None
            file.write(text)
        assert kept.read_text() == text


def test_files_named_twice_are_refused_also_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "en").write_text("the dog\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "symbolic").symlink_to(tmp_path / "en")
    (tmp_path / "hard").hardlink_to(tmp_path / "en")
    for name in ("en", "symbolic", "hard", "folder/../en"):
        out = tmp_path / name
        with pytest.raises(ValueError, match=rf"^--out: cannot write {out}: it is read too"):
            check_distinct_files([("--out", out)], [tmp_path / "other", tmp_path / "en"])
        with pytest.raises(ValueError, match=rf"^--a and --b need a file each, got {out} for both"):
            check_distinct_files([("--a", tmp_path / "en"), ("--c", None), ("--b", out)])
    check_distinct_files([("--out", tmp_path / "de")], [tmp_path / "en", None])
    new = [("--a", tmp_path / "new"), ("--b", tmp_path / "folder" / ".." / "new")]
    with pytest.raises(ValueError, match=r"^--a and --b need a file each"):
        check_distinct_files(new)


@pytest.mark.parametrize("name", ["config.yaml", "checkpoints/best.safetensors", "heads.json"])
def test_a_file_of_a_run_that_is_read_is_no_output(name: str, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "best.safetensors").touch()
    with pytest.raises(ValueError, match=rf"^--out: cannot write {tmp_path / name}: it is read"):
        check_distinct_files([("--out", tmp_path / name)], [tmp_path])
    check_distinct_files([("--out", tmp_path / "report.html")], [tmp_path])


@pytest.mark.parametrize(
    ("program", "words", "kept"),
    [
        ("align.py", "en de --out en", "en"),
        ("align.py", "en de --runs run run --out run/config.yaml", "run/config.yaml"),
        ("report.py", "run --out run/config.yaml", "run/config.yaml"),
        ("score.py", "en de --json en", "en"),
        ("analyse.py", "run --out run", "run/alignments.png"),
        ("analyse.py", "run --conllu table.md --out .", "table.md"),
        ("uncertainty.py", "run --others a=table.md --out .", "table.md"),
        ("transcribe.py", "run en de --alignments de", "de"),
        ("bench_aligner.py", "text --json text/test.en", "text/test.en"),
    ],
)
def test_no_program_writes_what_it_reads(
    program: str, words: str, kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused before anything is read: no run is needed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "text").mkdir()
    for name in {"en", "de", kept}:
        (tmp_path / name).write_text("kept\n")
    assert_refused(
        program, *words.split(), says=f"cannot write {kept}: it is read too", quiet=False
    )
    assert (tmp_path / kept).read_text() == "kept\n"


def test_an_output_longer_than_a_buffer_replaces_what_was_there(tmp_path: Path) -> None:
    path, lines = tmp_path / "out", "line\n" * 9999
    path.write_text("old")
    with open_output("out", str(path)) as file:
        assert file is not None
        file.write(lines)
    assert path.read_text() == lines
