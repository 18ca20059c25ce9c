"""One command for all programs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from latentheads.experiments.cli.main import PROGRAMS, main
from tests.experiments.programs import ROOT


def test_every_page_is_a_program_of_the_command() -> None:
    pages = {page.stem for page in (ROOT / "experiments").glob("*.py")} - {"__init__"}
    assert pages == set(PROGRAMS)


def test_a_program_gets_the_words_behind_its_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["translate", str(tmp_path / "nothing")])
    assert left.value.code == 2
    assert capsys.readouterr().err.startswith("translate.py: error: ")


def test_help_lists_the_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n  {name} " in shown for name in PROGRAMS)
    assert main([]) == 2


def test_an_unknown_program_costs_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("latentheads: error: unknown program 'train': choose from run, ")
    assert said.count("\n") == 1


def test_a_reader_that_goes_away_costs_no_word() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    words = [sys.executable, "-m", "latentheads.experiments.cli.main", "--help"]
    done = subprocess.run(words, stdout=writer, stderr=subprocess.PIPE, cwd=ROOT, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")
