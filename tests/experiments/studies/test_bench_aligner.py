"""The study of word aligners on a tiny text: what is measured, written and refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from latentheads.experiments.studies.word_aligners.rivals import RIVALS, run_rival
from tests.experiments.programs import FORKS, assert_one_line, inside

ENGLISH = ["the house", "the book", "a book", "a red house"]
FRENCH = ["la maison", "le livre", "un livre", "une maison rouge"]
LINKS = ["0-0 1-1", "0?0 1-1", "0-0 1-1 0?1", "0-0 1-2 2-1"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for language, lines in (("en", ENGLISH), ("fr", FRENCH)):
        for part, number in (("train", 3), ("trial", 2), ("test", 4)):
            text = "".join(f"{line}\n" for line in lines[:number])
            (tmp_path / f"{part}.{language}").write_text(text)
    for part, number in (("trial", 2), ("test", 4)):
        (tmp_path / f"{part}.links").write_text("".join(f"{line}\n" for line in LINKS[:number]))
    return tmp_path


def test_links_probabilities_and_guides_are_measured(folder: Path) -> None:
    out = folder / "results.json"
    done = inside("bench_aligner.py", str(folder), "--pairs", "3", "--json", str(out))
    assert (done.returncode, done.stderr) == (0, "")
    results = json.loads(out.read_text())
    own = results["latentheads"]
    assert results["metadata"]["pairs"] == 3
    assert own["pairs"] == 9
    assert set(own["scores"]) == {"test", "trial"}
    assert {"forward", "product 0.4", "grow-diag-final-and"} <= set(own["scores"]["test"])
    gaps = {name: guide["gap"] for name, guide in own["guides"].items()}
    assert gaps["exact"] == pytest.approx(0, abs=1e-5)
    assert gaps["tied"] > gaps["filtered"] > 0
    assert sum(own["calibration"]["test"]["possible"]["bins"]["count"]) > 8


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--pairs", "-5"], "argument --pairs: must be at least 0, got -5"),
        (["--sample", "-1"], "argument --sample: must be at least 0, got -1"),
        (["--pairs", "9"], "sample 0 of 9 lines ends after train"),
        (["--pairs", "3", "--systems", "hmm", "--rivals", "NONE"], "cannot run NONE"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], message: str, folder: Path) -> None:
    done = inside("bench_aligner.py", str(folder), *words)
    assert_one_line(done, "bench_aligner.py")
    assert message in done.stderr


@FORKS
def test_workers_are_timed_beside_one_process(folder: Path) -> None:
    out = folder / "workers.json"
    words = ("--pairs", "3", "--measure", "workers", "--workers", "2", "--json", str(out))
    done = inside("bench_aligner.py", str(folder), *words)
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 3)
    workers = json.loads(out.read_text())["workers"]
    assert list(workers) == ["workers 1", "workers 2", "wall_ratio", "lines_with_other_links"]
    assert workers["workers 2"]["pairs"] == 9
    assert workers["lines_with_other_links"] == 0
    assert all(value > 0 for value in workers["wall_ratio"])


def test_another_aligner_that_fails_is_named() -> None:
    assert "hmm" in RIVALS
    with pytest.raises(ValueError, match="failed: ModuleNotFoundError"):
        run_rival("hmm", Path(sys.executable), ENGLISH, FRENCH)
