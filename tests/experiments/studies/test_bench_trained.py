"""Trained networks beside fresh ones: all work in all precisions, one line for a mistake."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest

from latentheads.experiments.studies.benchmarks.baselines import PRECISIONS

pytestmark = pytest.mark.usefixtures("as_the_programs_do")


def test_a_runs_own_weights_and_fresh_ones_do_the_same_work(
    tiny_run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = import_module("latentheads.experiments.studies.bench_trained")
    monkeypatch.setattr(bench, "WARMUP", 0)
    monkeypatch.setattr(bench, "LENGTH", 3)
    file = tmp_path / "rows.json"
    bench.main([str(tiny_run), "--rounds=1", "--threads=1", "--json", str(file)])
    points = json.loads(file.read_text())["points"]
    made = [(p["run"], p["precision"], p["work"]) for p in points]
    assert made == [("run", precision, work) for precision in PRECISIONS for work in bench.WORK]
    assert all(p["ratio"] == pytest.approx(p["trained"] / p["fresh"]) for p in points)
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(points)
