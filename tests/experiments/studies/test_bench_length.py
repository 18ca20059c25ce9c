"""Growth with the length of a block: what is measured, written and refused."""

from __future__ import annotations

import json
from pathlib import Path

from tests.experiments.programs import painted, succeed

SMALL = "--width 8 --feed_forward 8 --layers 2 --heads 4 --vocabulary 9 --tokens 32 --rounds 2"
RECIPES = [f"--recipe={name}" for name in ("transformer", "transformer+group", "cascaded")]
SHORT = [*SMALL.split(), "--threads", "1", "--length", "32", "--length", "16"]


def test_every_row_is_measured_at_every_length_and_written(tmp_path: Path) -> None:
    file, figure = tmp_path / "length.json", tmp_path / "length.png"
    with painted():
        done = succeed(
            "bench_length.py", *SHORT, *RECIPES, "--json", str(file), "--figure", str(figure)
        )
    written = json.loads(file.read_text())
    assert {"torch", "pyro", "threads", "device", "plan", "memory"} <= set(written["metadata"])
    points = {(point["row"], point["length"]): point for point in written["points"]}
    rows = ["transformer", "transformer+group", "cascaded", "cascaded, fusion kept"]
    assert list(points) == [(row, length) for length in (16, 32) for row in rows]
    assert all(point["blocks"] * point["length"] == 32 for point in points.values())
    for length in (16, 32):
        plain, group, latent, kept = (points[row, length]["memory"] for row in rows)
        assert 0 < plain <= group < latent < kept
    assert all(points[row, 16]["memory"] < points[row, 32]["memory"] for row in rows)
    assert all(row in done.stdout for row in rows)
    assert figure.stat().st_size > 1000
