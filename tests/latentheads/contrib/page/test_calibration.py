"""What a page says of calibration."""

from __future__ import annotations

from pathlib import Path

import pytest

from latentheads.contrib.page.calibration import gather_calibration
from latentheads.contrib.uncertainty import SingleModel, bin_predictions, score_tokens
from latentheads.latents.alignments.state import AlignmentState
from tests.latentheads.contrib.page.runs import make_run, small_corpus


def test_bins_without_tokens_are_left_out(tmp_path: Path) -> None:
    corpus = small_corpus()
    run = make_run(tmp_path / "run", corpus, "delta", "one head")
    calibration = gather_calibration(run, corpus.test)
    figures = score_tokens(SingleModel(run.model, run.guide), corpus.test, len(corpus.target))
    bins = bin_predictions(figures, figures.by_temperature[1.0]).bins()
    full = bins.count > 0
    assert [row["tokens"] for row in calibration["bins"]] == bins.count[full].tolist()
    assert [row["said"] for row in calibration["bins"]] == pytest.approx(
        bins.confidence[full].tolist()
    )
    assert [row["right"] for row in calibration["bins"]] == pytest.approx(
        bins.accuracy[full].tolist()
    )
    assert calibration["error"] == pytest.approx(bins.error)


def test_it_needs_no_uncertainty_of_a_latent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = small_corpus()
    run = make_run(tmp_path / "run", corpus, "delta", "one head")
    whole = gather_calibration(run, corpus.test)
    monkeypatch.delattr(AlignmentState, "decompose_uncertainty")
    assert gather_calibration(run, corpus.test) == whole


def test_a_language_model_has_none(tmp_path: Path) -> None:
    corpus = small_corpus(text=True)
    assert gather_calibration(make_run(tmp_path / "run", corpus), corpus.test) == {}
