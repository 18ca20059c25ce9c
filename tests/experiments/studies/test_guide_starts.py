"""The study of starts: each guide starts at its product, and all of them are compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from latentheads.batch import Batch
from latentheads.experiments.studies import guide_starts
from latentheads.guides import MeanField
from latentheads.inference.bound import terms
from tests.latentheads.latents.alignments.models import SHAPES, aligned
from tests.tiny import small_batch


@pytest.fixture
def batch() -> Batch:
    return small_batch()


@pytest.mark.parametrize("shape", ["two blocks", "chain"])
def test_the_nearest_product_is_nearer_than_marginals_and_these_than_flat_ones(
    shape: str, batch: Batch
) -> None:
    model, kl = aligned(SHAPES[shape]), {}
    for start in guide_starts.STARTS:
        if shape == "chain" and start == "one-update":
            continue
        guide = MeanField(model).double().eval()
        guide_starts.start_at(guide, start)
        kl[start] = float(terms(model, guide, batch).total_kl.sum())
    assert 0 < kl["nearest-product"] < kl["marginals"] < min(kl["halved-marginals"], kl["scores"])
    assert kl.get("one-update", kl["nearest-product"]) >= kl["nearest-product"]


@pytest.mark.usefixtures("as_the_programs_do")
def test_starts_are_compared_by_language_and_seed(tmp_path: Path) -> None:
    sizes = ["--model_steps=1", "--guide_steps=1", "--sentences=40", "--held_out=4"]
    words = ["--languages=velu", "--training=frozen,joint", "--starts=scores,halved-marginals"]
    assert guide_starts.main([*words, *sizes, "--out", str(tmp_path / "a.json")]) == 0
    record = json.loads((tmp_path / "a.json").read_text("utf-8"))
    assert len(record["rows"]) == 4
    assert record["rows"][0]["start gap"] < 1e-3 < record["rows"][1]["start gap"]
    for row, line in zip(record["rows"], record["summary"], strict=True):
        difference = row["bound"] - row["exact log p"] + row["gap"]
        assert difference == pytest.approx(0, abs=1e-4)
        assert (line["start"], line["n"]) == (row["start"], 1)
