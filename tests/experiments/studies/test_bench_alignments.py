"""What alignments cost beside the plain network: what is measured, written and refused."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pyro
import pytest

pytestmark = pytest.mark.usefixtures("as_the_programs_do")

SMALL = "--width 8 --feed_forward 8 --layers 1 --heads 2 --vocabulary 9 --tokens 12 --rounds 1"


def test_rows_that_are_named_search_as_long_as_asked(tmp_path: Path) -> None:
    bench = import_module("latentheads.experiments.studies.bench_alignments")
    file, rows = tmp_path / "rows.json", ["MarianMT", "plain", "two blocks", "bernoulli-heads"]
    words = ["--decode", "3", "--beam", "2", "--rows", ",".join(rows), *SMALL.split()]
    bench.main([*words, "--length", "6", "--warmup", "1", "--threads", "1", "--json", str(file)])
    written = json.loads(file.read_text())
    assert [point["row"] for point in written["points"]] == rows
    assert written["metadata"]["search"] == {"tokens": 3, "beam": 2}


@pytest.mark.parametrize(
    "words",
    [[], ["--task", "language-model", "--cutoffs", "5,7"]],
    ids=["translation", "language model, bands"],
)
def test_every_row_is_measured_against_the_plain_network(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = import_module("latentheads.experiments.studies.bench_alignments")
    file = tmp_path / "rows.json"
    with pyro.validation_enabled(False):
        words = [*words, *SMALL.split(), "--length", "6", "--warmup", "1", "--threads", "1"]
        bench.main([*words, "--json", str(file)])
    rows = {point["row"]: point for point in json.loads(file.read_text())["points"]}
    assert list(rows) == list(bench.ROWS)
    assert rows.keys() >= {"soft", "mixture"}  # both controls
    assert rows["plain"]["ratio"] == rows["plain"]["ratio_high"] == 1.0
    assert all(row["ratio"] > 0 for row in rows.values())
    assert rows["plain"]["memory"] < rows["one head"]["memory"] < rows["two blocks"]["memory"]
    assert len(capsys.readouterr().out.splitlines()) == 3 + len(rows)
