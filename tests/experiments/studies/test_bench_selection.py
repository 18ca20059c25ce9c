"""What a selection saves once trained: rows, what they multiply, and what is refused."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pyro
import pytest

pytestmark = pytest.mark.usefixtures("as_the_programs_do")

SMALL = "--width 8 --feed_forward 8 --layers 1 --heads 4 --vocabulary 9 --tokens 64 --rounds 1"


def test_only_the_chosen_are_multiplied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench = import_module("latentheads.experiments.studies.bench_selection")
    file = tmp_path / "selection.json"
    with pyro.validation_enabled(False):
        words = [*SMALL.split(), "--length", "16", "--length", "8", "--threads", "1"]
        bench.main([*words, "--json", str(file)])
    written = json.loads(file.read_text())
    assert written["metadata"]["plan"]["rounds"] == 1
    for length in (8, 16):
        actual = {p["row"]: p["gflop"] for p in written["points"] if p["length"] == length}
        assert list(actual) == list(bench.ROWS)
        assert actual["heads"] == actual["group"] == actual["subset"]
        assert actual["heads"] <= actual["bernoulli"] < actual["masked"]
    table = capsys.readouterr().out.splitlines()[1:]
    assert len(table) == 1 + 2 * len(bench.ROWS)
    assert [line.split()[-1] for line in table if "masked" in line] == ["1.00", "1.00"]
