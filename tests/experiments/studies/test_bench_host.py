"""What a step costs beside its arithmetic: counts that are the same in every run."""

from __future__ import annotations

import json
from pathlib import Path

import pyro
import pytest

from latentheads.experiments.studies import bench_host as bench
from latentheads.experiments.studies.benchmarks.baselines import Setting
from tests.experiments.programs import succeed

pytestmark = pytest.mark.usefixtures("as_the_programs_do")


def test_a_step_has_hardly_more_operations_than_by_hand() -> None:
    """Views are left out; each recipe of a size at which arithmetic takes no time."""
    with pyro.validation_enabled(False):
        runners = {r.name: r for r in bench.make_runners(bench.FULL.size, Setting())}
        counts = {name: bench.count_operations(runner) for name, runner in runners.items()}
        calls = [bench.count_calls(runners["coda"]) for _ in range(2)]
    for recipe in ("coda", "cascaded"):
        assert counts[recipe] <= 1.15 * counts[f"{recipe}, plain PyTorch"]
        assert counts[recipe] <= 1.06 * counts[f"{recipe}, same kernels"]
    assert counts["no latents"] < 0.7 * counts[bench.FUSED]
    assert counts[bench.ALIGNED] < 1.1 * counts[bench.FUSED]
    assert calls[0] == calls[1]


def test_every_row_is_counted_timed_and_written(tmp_path: Path) -> None:
    file = tmp_path / "host.json"
    words = ["--layers=1", "--rounds=1", "--warmup=1", "--threads=1", "--json", str(file)]
    succeed("bench_host.py", *words)
    points = json.loads(file.read_text())["points"]
    assert [point["row"] for point in points] == [*bench.make_rows()]
    assert points[0]["ratio"] == 1.0
    assert all(point["calls"] > 0 and point["operations"] > 0 for point in points)
