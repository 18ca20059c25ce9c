"""Where a program writes, tried before the work."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from latentheads.experiments.cli.outputs import check_output_file, make_output_folder, open_output


def test_a_folder_is_tried_and_what_is_there_stays(tmp_path: Path) -> None:
    out = make_output_folder(tmp_path / "a" / "b", "table.md")
    assert list(out.iterdir()) == []
    (out / "table.md").write_text("kept")
    assert make_output_folder(out, "table.md") == out
    assert (out / "table.md").read_text() == "kept"
    with pytest.raises(ValueError, match=r"^--out: cannot write .*table.md/c: Not a directory$"):
        make_output_folder(out / "table.md" / "c", "table.md")


def test_an_output_is_opened_where_one_is_asked_for(tmp_path: Path) -> None:
    with open_output("alignments", None) as none:
        assert none is None
    with open_output("alignments", str(tmp_path / "links")) as file:
        assert file is not None
        file.write("0-0\n")
    assert (tmp_path / "links").read_text() == "0-0\n"
    with pytest.raises(ValueError, match=r"--alignments: cannot write .*: No such file"):  # noqa: SIM117
        with open_output("alignments", str(tmp_path / "nowhere" / "links")):
            pass


@pytest.mark.parametrize(
    ("stream", "said"), [("stdin", "input"), ("stdout", "output"), ("stderr", "error")]
)
def test_an_output_is_no_file_that_is_read_or_written_already(
    stream: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "text.en"
    text.write_text("a line\n")
    refused = pytest.raises(ValueError, match=f"text.en: it is standard {said} too$")
    with text.open("a+") as already:
        monkeypatch.setattr(sys, stream, already)
        with refused, open_output("confidence", str(text)):
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

    said = "^--alignments: cannot write /dev/full: No space left on device$"
    with pytest.raises(ValueError, match=said):
        write(flush=True)
    with pytest.raises(SystemExit):  # what a program ends by is not hidden by closing the file
        write(flush=False)


def test_a_file_is_tried_before_the_work(tmp_path: Path) -> None:
    check_output_file(tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(
        ValueError, match=r"^--out: cannot write .*/no/page.html: its folder is not"
    ):
        check_output_file(tmp_path / "no" / "page.html")
    with pytest.raises(ValueError, match=r"^--out: cannot write .*: it is a folder$"):
        check_output_file(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match=r"^--out: cannot write .*/pipe: it is not a file$"):
        check_output_file(tmp_path / "pipe")


@pytest.mark.parametrize("old", ["of yesterday", None])
def test_a_file_is_tried_without_a_change(old: str | None, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    if old is not None:
        out.write_text(old)
    check_output_file(out)
    assert (out.read_text() if out.exists() else None) == old
    with pytest.raises(ValueError, match=r"^--out: cannot write .*: File name too long$"):
        check_output_file(tmp_path / ("n" * 256))


def test_a_file_on_a_full_disk_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", write)
    with pytest.raises(ValueError, match=r"^--out: cannot write .*: No space left on device$"):
        check_output_file(tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_written_where_a_link_leads(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    place = tmp_path / "there" / "page.html"
    (tmp_path / "link").symlink_to(place)
    assert check_output_file(tmp_path / "link") == place
    place.write_text("of yesterday")
    assert check_output_file(tmp_path / "link") == place


def test_what_a_file_holds_is_lost_to_what_is_written_alone(tmp_path: Path) -> None:
    kept = tmp_path / "links"
    kept.write_text("of yesterday\n")

    def fail() -> None:
        with open_output("alignments", str(kept)):
            raise ValueError("before the work")

    with pytest.raises(ValueError, match="before the work"):
        fail()
    assert kept.read_text() == "of yesterday\n"
    for said in ("0-0\n", ""):
        with open_output("alignments", str(kept)) as file:
            assert file is not None
            file.write(said)
        assert kept.read_text() == said
