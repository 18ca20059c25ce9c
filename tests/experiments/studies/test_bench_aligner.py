"""The study of word aligners on a tiny text: what is measured, written and refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from latentheads.contrib.align.symmetrization import LinkPosterior
from latentheads.experiments.studies.word_aligners.measures import (
    Gold,
    calibrate,
    compare,
    fit_scale,
    measure_rival,
    read_gold,
)
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


def test_sure_and_possible_links_are_read(folder: Path) -> None:
    gold = read_gold(folder / "test.links")
    assert gold.sure[1] == {(1, 1)}
    assert gold.possible[1] == {(0, 0), (1, 1)}


def test_the_scores_of_another_aligner_by_hand() -> None:
    gold = Gold([frozenset({(0, 0), (1, 1)})], [frozenset({(0, 0), (1, 1), (1, 0)})])
    forward, backward = [frozenset({(0, 0), (1, 0)})], [frozenset({(0, 0), (1, 1), (0, 1)})]
    scores = measure_rival(forward, backward, gold)
    assert scores["intersection"] == {
        **{"aer": pytest.approx(1 - 2 / 3, abs=1e-5), "precision": 1.0},
        **{"recall": 0.5, "f1": pytest.approx(2 / 3, abs=1e-5)},
    }
    assert scores["backward"]["precision"] == pytest.approx(2 / 3, abs=1e-5)


def test_calibration_by_hand() -> None:
    table = np.array([[0.9, 0.4], [0.005, 0.6]])
    posterior = LinkPosterior(table, table, (0.0, 0.0))
    gold = Gold([frozenset({(0, 0)})], [frozenset({(0, 0), (1, 1)})])
    measured = calibrate([posterior], gold)
    assert measured["possible"]["bins"]["count"] == [0, 0, 0, 1, 0, 1, 0, 0, 1, 0]
    assert measured["possible"]["ece"] == pytest.approx((0.1 + 0.4 + 0.4) / 3, abs=1e-5)
    assert measured["sure"]["ece"] == pytest.approx((0.1 + 0.4 + 0.6) / 3, abs=1e-5)
    right, wrong = 0.1**2 + 0.4**2, 0.4**2 + 0.005**2
    assert measured["brier_of_possible_links"] == pytest.approx((right + wrong) / 4, abs=1e-5)
    assert measured["brier_of_sure_links"] == pytest.approx((0.1**2 + wrong) / 3, abs=1e-5)
    assert measured["precision_by_share"]["1.0"] == pytest.approx(2 / 3, abs=1e-5)
    assert measured["precision_by_share"]["0.5"] == 1.0


def test_a_scale_recovers_the_log_odds_that_links_are_correct_by() -> None:
    rng = np.random.default_rng(0)
    table = rng.uniform(0.02, 0.98, (100, 100))
    truth = 1 / (1 + np.exp(-0.5 * np.log(table / (1 - table)) - 1.0))
    is_link = rng.uniform(size=table.shape) < truth
    links = frozenset((int(s), int(t)) for s, t in zip(*is_link.nonzero(), strict=True))
    posterior, gold = LinkPosterior(table, table, (0.0, 0.0)), Gold([links], [links])
    scale = fit_scale([posterior], gold)
    assert scale == (pytest.approx(0.5, abs=0.06), pytest.approx(1.0, abs=0.06))
    before, after = calibrate([posterior], gold), calibrate([posterior], gold, scale)
    assert after["possible"]["ece"] < 0.02 < before["possible"]["ece"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--pairs", "9"], "sample 0 of 9 lines ends after train"),
        (["--pairs", "3", "--systems", "hmm", "--rivals", "NONE"], "cannot run NONE"),
        (["--measure", "workers", "--workers", "1"], "--workers must be at least 2"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], message: str, folder: Path) -> None:
    done = inside("bench_aligner.py", str(folder), *words)
    assert_one_line(done, "bench_aligner.py")
    assert message in done.stderr


def test_the_difference_of_two_error_rates_by_hand() -> None:
    counts, first = np.array([[1.0, 2.0], [2.0, 4.0]]), np.array([[2.0, 2.0], [2.0, 4.0]])
    indices = np.array([[0, 0], [1, 1], [0, 1]])
    row = compare(counts, first, indices)
    assert row["aer"] == 50.0
    assert row["difference"][0] == pytest.approx(50 - 100 / 3, abs=0.01)
    # of the resamples 50, 0 and 16.7
    assert row["difference"][1:] == [pytest.approx(x, abs=1) for x in (0.8, 48.3)]


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
