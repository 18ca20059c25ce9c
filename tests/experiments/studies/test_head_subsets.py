"""The study of subsets of heads, on a tiny run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import latentheads as lh
from latentheads.experiments.studies import head_subsets
from latentheads.latents.bernoulli_heads.corpus import HeadPosterior
from latentheads.names import Block

pytestmark = pytest.mark.usefixtures("as_the_programs_do")


def call(part: str, run: Path, out: Path, *words: str) -> dict[str, object]:
    quick = ("--steps=2", "--sentences=5", "--tokens=64")
    assert head_subsets.main([part, str(run), f"--out={out}", *quick, *words]) == 0
    return dict(json.loads(out.read_text("utf-8")))


def test_gaps_of_guides_are_those_of_one_model(tiny_run: Path, tmp_path: Path) -> None:
    rows = call("ladder", tiny_run, tmp_path / "ladder.json")["rows"]
    assert isinstance(rows, list)
    assert [row["guide"] for row in rows] == [name for name, _ in head_subsets.GUIDE_ROWS]
    for row in rows:
        assert row["exact"] == pytest.approx(rows[0]["exact"], abs=1e-5)
        assert row["elbo"] + row["gap"] == pytest.approx(row["exact"], abs=1e-4)
    assert rows[0]["kl"] == 0
    assert rows[-1]["gap"] == pytest.approx(0, abs=1e-5)


def test_rankings_lose_nats(tiny_run: Path, tmp_path: Path) -> None:
    found = call("ranking", tiny_run, tmp_path / "ranking.json", "--removed=1", "--resamples=2")
    rows = found["rows"]
    assert isinstance(rows, list)
    assert [row["method"] for row in rows] == ["posterior", "gradient", "random"]
    assert all(len(row["nats_lost"]) == 2 and 0 <= row["jaccard"] <= 1 for row in rows)
    assert isinstance(found["temperatures"], list)


def test_overlap_of_what_is_removed() -> None:
    first, second = {"a": [0, 1], "b": []}, {"a": [1], "b": [2]}
    assert head_subsets.jaccard([first, second]) == pytest.approx(1 / 3)
    assert head_subsets.jaccard([first, first]) == 1
    lower, upper = "encoder.0.self", "encoder.1.self"
    importance = {lower: torch.tensor([3.0, 1.0]), upper: torch.tensor([2.0])}
    kept, gone = head_subsets.removed_of(importance, 1)
    assert (kept, gone) == ({lower: [0], upper: [0]}, {lower: [1], upper: []})


def test_interaction_is_what_both_cost_beyond_each() -> None:
    nats = torch.tensor([[-9.0, -2.0, -3.0, -1.0]]).double()  # none, first, second, both active
    posterior = HeadPosterior([Block("decoder-self", 0, 2)], nats, torch.ones(1).double())
    assert head_subsets.interaction(posterior, 0, 1) == pytest.approx(8 - 1 - 2)
    assert head_subsets.correlation([1.0, 2.0, 3.0], [2.0, 5.0, 7.0]) == pytest.approx(1)


def test_resamples_hold_sentences_of_the_part(tiny_run: Path) -> None:
    part = lh.load_run(tiny_run).corpus.valid
    one, again = (head_subsets.resample(part, 3) for _ in range(2))
    assert all(torch.equal(a.target, b.target) for a, b in zip(one, again, strict=True))
    assert sum(map(len, one)) == len(part)
