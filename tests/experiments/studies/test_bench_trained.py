"""Trained networks beside fresh ones: all work in all precisions, one line for a mistake."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest

from latentheads.experiments.studies.benchmarks.baselines import PRECISIONS
from tests.experiments.programs import SHORT, TINY, succeed

pytestmark = pytest.mark.usefixtures("as_the_programs_do")


def test_a_runs_own_weights_and_fresh_ones_do_the_same_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = import_module("latentheads.experiments.studies.bench_trained")
    monkeypatch.setattr(bench, "WARMUP", 0)
    monkeypatch.setattr(bench, "LENGTH", 3)
    succeed("run.py", "--recipe=coda", *TINY, *SHORT, "--out", str(tmp_path / "run"))
    file = tmp_path / "rows.json"
    bench.main([str(tmp_path / "run"), "--rounds=1", "--threads=1", "--json", str(file)])
    points = json.loads(file.read_text())["points"]
    made = [(p["run"], p["precision"], p["work"]) for p in points]
    assert made == [("run", precision, work) for precision in PRECISIONS for work in bench.WORK]
    assert all(p["ratio"] == pytest.approx(p["trained"] / p["fresh"]) for p in points)
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(points)
