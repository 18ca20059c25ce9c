"""What latent heads cost in a network of Hugging Face: what is measured, written and refused."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pyro
import pytest

from tests.experiments.programs import painted

pytestmark = pytest.mark.usefixtures("as_the_programs_do")

SMALL = "--width 8 --feed_forward 8 --layers 2 --heads 2 --vocabulary 9 --tokens 12 --rounds 1"


def test_every_row_takes_a_step(tmp_path: Path) -> None:
    bench = import_module("latentheads.experiments.studies.bench_pretrained")
    file = tmp_path / "rows.json"
    words = [*SMALL.split(), "--length", "6", "--warmup", "1", "--threads", "1"]
    with painted(), pyro.validation_enabled(False):
        bench.main([*words, "--json", str(file)])
    rows = {point["row"]: point for point in json.loads(file.read_text())["points"]}
    assert list(rows) == list(bench.ROWS)
    assert rows["delta"]["memory"] < rows["cascaded"]["memory"]
