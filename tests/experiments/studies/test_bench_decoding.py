"""The cache beside re-computation, which have to find the same: rows are measured and written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.experiments.programs import succeed

SMALL = "--width 8 --feed_forward 8 --layers 1 --heads 2 --batch 3 --length 5 --vocabulary 9"
QUICK = ["--quick", "--rounds", "1", "--limit", "3", *SMALL.split()]


def test_every_row_is_measured_and_written(tmp_path: Path) -> None:
    file = tmp_path / "decoding.json"
    words = [*QUICK, "--beam", "1", "--beam", "2", "--json", str(file)]
    done = succeed("bench_decoding.py", *words, "--threads", "1")
    assert not done.stderr
    written = json.loads(file.read_text())
    assert {"torch", "pyro", "threads", "device", "plan", "setting"} <= set(written["metadata"])
    assert written["metadata"]["plan"]["limit"] == 3
    rows = {(row["recipe"], row["beam"], row["row"]): row for row in written["rows"]}
    assert len(rows) == len(written["rows"]) == 3 * 2 * 2
    for recipe in ("transformer", "coda", "cascaded"):
        for beam in (1, 2):
            kept, again = (rows[recipe, beam, row] for row in ("cache", "re-computation"))
            assert kept["ratio"] == kept["ratio_low"] == kept["ratio_high"] == 1.0
            assert 0 < again["ratio_low"] <= again["ratio"] <= again["ratio_high"]
            assert kept["sentences_per_second"] == pytest.approx(3e3 / kept["ms"])
            assert kept["ties"] == again["ties"] <= 3
    assert len(done.stdout.splitlines()) == 2 + 1 + len(rows)
