"""The study of subsets of heads, on a tiny run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from latentheads.experiments.studies import head_subsets
from latentheads.experiments.studies.subsets import guides, objectives
from tests.experiments.programs import assert_refused

pytestmark = pytest.mark.usefixtures("as_the_programs_do")


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """How good an optimum is after all of its steps is tested with the guides."""
    monkeypatch.setattr(guides, "CHAIN_STEPS", 3)


def call(part: str, run: Path, out: Path, *words: str) -> dict[str, Any]:
    assert head_subsets.main([part, str(run), f"--out={out}", "--sentences=5", *words]) == 0
    (network,) = json.loads(out.read_text("utf-8"))["networks"]
    return dict(network)


def test_gaps_of_guides_are_those_of_one_model(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guides, "EVALUATE_EVERY", 1)
    quick = ("--train_sentences=9", "--steps=2")
    rows = call("ladder", tiny_run, tmp_path / "ladder.json", *quick)["rows"]
    exact = next(row for row in rows if row["guide"] == "exact")
    for row in rows:
        assert row["bound"] + row["gap"] == pytest.approx(exact["bound"], abs=1e-4)
    assert rows[0]["kl"] == 0
    assert exact["gap"] == pytest.approx(0, abs=1e-5)
    assert (tmp_path / "ladder.png").exists()


def test_rankings_lose_nats(tiny_run: Path, tmp_path: Path) -> None:
    words = ("--removed=1", "--resamples=2", "--methods=posterior,random")
    rows = call("ranking", tiny_run, tmp_path / "ranking.json", *words)["rows"]
    assert [row["method"] for row in rows] == ["posterior", "random"]
    assert all(len(row["nats_lost"]) == 2 and 0 <= row["jaccard"] <= 1 for row in rows)


def test_sets_pairs_and_inclusion_of_every_attention_type(tiny_run: Path, tmp_path: Path) -> None:
    answer = call("sets", tiny_run, tmp_path / "sets.json", "--resamples=1")
    assert len(answer["structures"]) == 3
    assert answer["pairs"]
    rows = call("inclusion", tiny_run, tmp_path / "inclusion.json")["rows"]
    assert {row["tau"] for row in rows} == {1.0, 10.0, 100.0, 1000.0}
    assert all((tmp_path / f"{name}.png").exists() for name in ("sets", "inclusion"))


def test_every_loss_of_a_guide_is_timed_and_has_the_same_evidence(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guides, "EVALUATE_EVERY", 1)
    quick = ("--train_sentences=9", "--steps=2")
    rows = call("objectives", tiny_run, tmp_path / "objectives.json", *quick)["rows"]
    assert len(rows) == len(objectives.LOSSES) * objectives.GUIDE_SEEDS
    ends = [row["history"][-1] for row in rows]
    assert all(end["step"] == 2 and end["seconds"] > 0 for end in ends)
    evidence = [end["bound"] + end["gap"] for end in ends]
    assert evidence == pytest.approx([evidence[0]] * len(rows), abs=1e-4)
    assert len({end["gap"] for end in ends}) == len(rows)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--out=gone/x.json", "--out: "),
        ("--resamples=1", "resamples must be at least 2, got 1"),
        ("--sentences=0", "--sentences: must be at least 1, got 0"),
        ("--train_sentences=0", "--train_sentences: must be at least 1, got 0"),
        ("--rate=1", "--rate: must be below 1, got 1"),
        ("--removed=2,x", "--removed: must be a whole number, got 'x'"),
        ("--removed=0", "--removed: must be at least 1, got 0"),
        ("--removed=1,99", "removed must lie in 1 ... 12, got 99"),
    ],
)
def test_numbers_and_outputs_are_checked_first(
    words: str, says: str, tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ("ranking", str(tiny_run), "--out=x.json", "--sentences=5", words)
    assert_refused("head_subsets.py", *command, says=says)
