"""Rankings of heads: every method on a tiny run, removal and overlap."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import latentheads as lh
from latentheads.experiments.studies.subsets import rankings
from latentheads.pruning import all_heads

pytestmark = pytest.mark.usefixtures("as_the_programs_do")

OPTIONS = {"tau": 1.0, "noise_steps": 2, "gate_steps": 3, "methods": ""}


def test_every_method_ranks_every_head(tiny_run: Path) -> None:
    run = lh.load_run(tiny_run)
    sentences = rankings.resample(run.corpus.valid.first(6), 0)
    ranked = rankings.rank(run, sentences, SimpleNamespace(**OPTIONS), 0)
    assert set(ranked) == set(rankings.METHODS)
    sizes = {name: len(heads) for name, heads in all_heads(run.model).items()}
    for importance in ranked.values():
        assert {name: len(values) for name, values in importance.items()} == sizes
        assert all(values.isfinite().all() for values in importance.values())


def test_overlap_of_what_is_removed() -> None:
    first, second = {"a": [0, 1], "b": []}, {"a": [1], "b": [2]}
    assert rankings.jaccard([first, second]) == pytest.approx(1 / 3)
    assert rankings.jaccard([first, first]) == 1
    lower, upper = "encoder.0.self", "encoder.1.self"
    importance = {lower: torch.tensor([3.0, 1.0]), upper: torch.tensor([2.0])}
    kept, gone = rankings.removed_of(importance, 1)
    assert (kept, gone) == ({lower: [0], upper: [0]}, {lower: [1], upper: []})


def test_resamples_hold_sentences_of_the_part(tiny_run: Path) -> None:
    part = lh.load_run(tiny_run).corpus.valid
    one, again = (rankings.resample(part, 3) for _ in range(2))
    assert all(torch.equal(a.target, b.target) for a, b in zip(one, again, strict=True))
    assert sum(map(len, one)) == len(part)
