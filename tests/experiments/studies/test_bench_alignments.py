"""What alignments cost beside the plain network: what is measured, written and refused."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pyro
import pytest

pytestmark = pytest.mark.usefixtures("as_the_programs_do")

SMALL = "--width 8 --feed_forward 8 --layers 1 --heads 2 --vocabulary 9 --tokens 12 --rounds 1"


@pytest.mark.parametrize("beam", [1, 2])
def test_rows_that_are_named_search_as_long_as_asked(beam: int, tmp_path: Path) -> None:
    bench = import_module("latentheads.experiments.studies.bench_alignments")
    file, rows = tmp_path / "rows.json", ["MarianMT", "plain", "two blocks", "bernoulli-heads"]
    words = ["--decode", "3", "--beam", str(beam), "--rows", ",".join(rows), *SMALL.split()]
    bench.main([*words, "--length", "6", "--warmup", "1", "--threads", "1", "--json", str(file)])
    written = json.loads(file.read_text())
    assert [point["row"] for point in written["points"]] == rows
    assert written["metadata"]["search"] == {"tokens": 3, "beam": beam}
    model, batch = model_and_batch(bench)
    (search, _) = bench.Search(3, beam).of(model, batch)
    assert {len(found.tokens) for hypotheses in search() for found in hypotheses} == {3}
    marian = bench._make_marian(bench.Size(8, 8, 1, 2, 2, 6, 9))
    assert bench.Search(3, beam).of_marian(marian, batch)[0]().shape == (2, 1 + 3)  # BOS is first


def model_and_batch(bench: ModuleType) -> tuple[Any, Any]:
    size, setting = bench.Size(8, 8, 1, 2, 2, 6, 9), bench.Setting()
    batch = bench.make_batch(size, setting)
    return bench._make_pair("two blocks", size, size.network, setting, batch)[0], batch


@pytest.mark.parametrize(
    "words",
    [[], ["--task", "language-model", "--cutoffs", "5,7"], ["--task", "language-model"]],
    ids=["translation", "language model, bands", "language model"],
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
