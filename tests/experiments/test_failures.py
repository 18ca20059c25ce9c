"""Every program with every failure that all may meet: one line, a status, and no file touched."""

from __future__ import annotations

import shutil
from pathlib import Path
from unittest import mock

import pytest

from latentheads.experiments.cli.main import PROGRAMS
from latentheads.training import checkpoints
from tests.experiments.programs import SHORT, TINY, assert_one_line, inside

FEW = [word for word in (*TINY, *SHORT) if "heads" not in word]
COMMANDS: dict[str, list[str]] = {
    "run": ["--start=run", "--out=out", *TINY, *SHORT],
    "compare": ["--recipes=transformer", "--start=run", "--out=out", *TINY, *SHORT],
    "sweep": ["--recipes=transformer", "--head_numbers=2", "--start=run", "--out=out", *FEW],
    "translate": ["run"],
    "align": ["text", "text", "--runs", "run", "other"],
    "transcribe": ["run", "sound.wav"],
    "generate": ["run"],
    "score": ["run", "other"],
    "analyse": ["run", "--out=out"],
    "uncertainty": ["run", "--out=out"],
    "report": ["run", "--out=page.html"],
    "prune": ["run", "--out=out"],
    "word_times": ["run", "sound.wav"],
}
"""A command of each program that opens a run."""


OPENING = sorted({*PROGRAMS} - {"score", "word_times"})
"""Programs that open the weights of a run; a score needs its results alone, word times none."""


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


SPOILT = {
    "no folder": shutil.rmtree,
    "no configuration": lambda run: (run / "config.yaml").unlink(),
    "a configuration that is no text": lambda run: (run / "config.yaml").write_bytes(b"\xff"),
    "a configuration of another program": lambda run: (run / "config.yaml").write_text("a: 1\n"),
    "weights that are cut short": lambda run: shorten(run / "checkpoints" / "best.safetensors"),
}
"""What may have happened to a run."""


@pytest.fixture
def here(tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two runs and a text, where the programs are started."""
    monkeypatch.chdir(tmp_path)
    for name in ("run", "other"):
        shutil.copytree(tiny_run, tmp_path / name)
    (tmp_path / "text").write_text("the dog\n")
    return tmp_path


def contents(folder: Path) -> dict[Path, int]:
    """The files below a folder, and when they were written."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.name != ".lock"}


@pytest.mark.parametrize("failure", SPOILT)
@pytest.mark.parametrize("program", OPENING)
def test_a_run_that_cannot_be_opened_is_named(program: str, failure: str, here: Path) -> None:
    SPOILT[failure](here / "run")
    before = contents(here)
    done = inside(f"{program}.py", *COMMANDS[program], text="the dog\n")
    assert_one_line(done, f"{program}.py")
    assert "run" in done.stderr.partition("error: ")[2]
    assert contents(here) == before


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_option_that_is_none_is_named(program: str, here: Path) -> None:
    before = contents(here)
    done = inside(f"{program}.py", *COMMANDS[program], "--nonsense=3")
    assert_one_line(done, f"{program}.py")
    assert "--nonsense" in done.stderr
    assert contents(here) == before


@pytest.mark.parametrize("program", OPENING)
def test_a_program_that_is_interrupted_says_so(
    program: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "load", mock.Mock(side_effect=KeyboardInterrupt))
    done = inside(f"{program}.py", *COMMANDS[program], text="the dog\n")
    assert_one_line(done, f"{program}.py", 130)
    assert "stopped" in done.stderr
