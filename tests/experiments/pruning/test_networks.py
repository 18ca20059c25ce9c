"""Networks without some heads as run folders, and points of the curve of a run that loses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import latentheads as lh
from latentheads.experiments.pruning.networks import Pruned, curve_point, write_run
from latentheads.guides import Tied
from latentheads.metrics.scores import Scores
from latentheads.models import Translation
from latentheads.runs.results import Results
from tests.figures import FIGURES


def test_tokens_per_second_and_speed_agree_where_the_load_of_the_machine_changes() -> None:
    results = Results(valid=Scores.of(FIGURES), test=Scores.of(FIGURES))
    whole, network = (
        Pruned({}, 7, results, seconds) for seconds in ([2.0, 3.0, 11.0], [1.0, 5.0, 5.0])
    )
    before, after = (curve_point(pruned, whole, tokens=21) for pruned in (whole, network))
    assert (before["speed"], before["tokens_per_second"]) == (1, 7)
    assert after["speed"] == pytest.approx(2)  # of 2, .6 and 2.2
    assert after["tokens_per_second"] == pytest.approx(14)


def test_blocks_that_are_not_named_keep_the_heads_of_a_pruned_run(tmp_path: Path) -> None:
    corpus = lh.data.Grammar(sentences=30, held_out=4).load()
    model = Translation.of(corpus, latents=(), width=4, heads=2, layers=1)
    options: Any = {"steps": 1, "num_samples": 1, "quiet": True, "out": tmp_path / "run"}
    lh.Trainer(model, Tied(model), corpus, **options).fit()
    first, second = {"decoder.0.cross": [1]}, {"encoder.0.self": [1, 1]}
    for name, kept, number in (("run", first, 5), ("first", second, 4)):
        run, out = lh.load_run(tmp_path / name), tmp_path / ("first" if name == "run" else "second")
        assert write_run(kept, run, corpus, out, by="by hand").heads == number
    heads = {"encoder.0.self": [1], "decoder.0.self": [0, 1], "decoder.0.cross": [1]}
    assert lh.load_run(tmp_path / "second").heads == heads
