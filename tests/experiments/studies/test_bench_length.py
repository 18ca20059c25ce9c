"""Growth with the length of a block: what is measured, written and refused."""

from __future__ import annotations

import json
from pathlib import Path

from tests.experiments.programs import painted, succeed

SMALL = "--width 8 --feed_forward 8 --layers 2 --heads 4 --vocabulary 9 --tokens 32 --rounds 2"
SHORT = [*SMALL.split(), "--threads", "1", "--length", "32", "--length", "16"]


def test_every_row_is_measured_at_every_length_and_written(tmp_path: Path) -> None:
    file, figure = tmp_path / "length.json", tmp_path / "length.png"
    with painted():
        done = succeed("bench_length.py", *SHORT, "--json", str(file), "--figure", str(figure))
    written = json.loads(file.read_text())
    assert {"torch", "pyro", "threads", "device", "plan", "memory"} <= set(written["metadata"])
    points = {(point["row"], point["length"]): point for point in written["points"]}
    rows = ["transformer", "cascaded", "cascaded, fusion kept"]
    assert list(points) == [(row, length) for length in (16, 32) for row in rows]
    assert all(point["blocks"] * point["length"] == 32 for point in points.values())
    for length in (16, 32):
        plain, latent, kept = (points[row, length]["memory"] for row in rows)
        assert 0 < plain < latent < kept
    assert all(points[row, 16]["memory"] < points[row, 32]["memory"] for row in rows)
    assert all(row in done.stdout for row in rows)
    assert figure.stat().st_size > 1000


def test_a_group_costs_less_than_all_its_candidates(tmp_path: Path) -> None:
    file = tmp_path / "length.json"
    recipes = [f"--recipe=transformer{text}" for text in ("", "+group", "+bernoulli")]
    words = [*SMALL.split(), "--rounds=1", "--length=32", *recipes]
    succeed("bench_length.py", *words, "--json", str(file))
    points = json.loads(file.read_text())["points"]
    plain, group, every = (point["memory"] for point in points)
    assert plain <= group < every
