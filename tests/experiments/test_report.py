"""The page, as the programs write it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from unittest import mock

import pytest

from latentheads.contrib import page
from latentheads.experiments.cli import pages
from latentheads.experiments.cli.options import ProgramOptions
from tests.experiments.programs import SHORT, TINY, assert_refused, deserted, inside, succeed


def test_a_page_of_a_finished_run(tiny_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    words = ["--shown=2", "--num_samples=2", "--sentences=5", f"--out={out}"]
    done = succeed("report.py", str(tiny_run), *words)
    assert done.stdout == f"written to {out}: {out.stat().st_size:,} bytes\n"
    text = out.read_text(encoding="utf-8")
    assert '"alignments":[{"name":"decoder-alignment"' in text
    assert text.count('"hypothesis":') == 2


def test_a_reader_that_goes_away_loses_no_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written: list[Path] = []

    def write(plans: object, options: object, out: Path) -> str:
        written.append(out)
        return "a page"

    monkeypatch.setattr(pages, "write_page", write)
    with deserted(), pytest.raises(SystemExit) as left:
        pages.print_and_write("run.py", "a table", [], ProgramOptions(report=True), tmp_path)
    assert left.value.code == 141
    assert written == [tmp_path]
    assert capsys.readouterr() == ("", "")


def test_training_writes_it_when_asked(tmp_path: Path) -> None:
    out, quick = tmp_path / "coda-seed0", partial(page.report, num_samples=2, shown=1, sentences=2)
    training = ["--report", *TINY, *SHORT]
    with mock.patch.object(page, "report", quick):
        words = ["--recipes=coda", "--seeds=0", *training, f"--out={tmp_path}"]
        compared = inside("compare.py", *words)
        again = inside("run.py", "--recipe=coda", *training, f"--out={out}")
    for done, folder in ((compared, tmp_path), (again, out)):
        assert done.returncode == 0, done.stderr
        file = folder / "report.html"
        assert f"written to {file}: {file.stat().st_size:,} bytes" in done.stdout
        assert "<title>latentheads: coda-seed0</title>" in file.read_text(encoding="utf-8")


def test_what_a_page_lacks_costs_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    of_run = {"calibration": "no form for decoding"}
    pages.warn_incomplete("report.py", page.ReportPage("", {"a": "no file"}, {"b": of_run}))
    assert capsys.readouterr().err.splitlines() == [
        "report.py: note: no sentence of a could be read: no file",
        "report.py: note: the page has no calibration of b: no form for decoding",
    ]


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("--out=nowhere/page.html", "cannot write nowhere/page.html: No such file or directory"),
        ("--out=.", "--out: cannot write .: it is a folder"),
        ("--part=train", "choose from"),
    ],
)
def test_a_mistake_costs_one_line(tiny_run: Path, word: str, says: str) -> None:
    assert_refused("report.py", str(tiny_run), word, says=says)
