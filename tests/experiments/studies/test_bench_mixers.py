"""Growth of each mixer with the length: what is measured, written and refused."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pyro
import pytest

from tests.experiments.programs import painted

pytestmark = pytest.mark.usefixtures("as_the_programs_do")

SMALL = "--width 8 --feed_forward 8 --layers 1 --heads 4 --vocabulary 9 --tokens 512 --rounds 1"
SHORT = [*SMALL.split(), "--length", "512", "--length", "64", "--window", "3", "--threads", "1"]


def test_every_mixer_is_measured_and_grows_with_the_tokens_alone(
    tmp_path: Path,
) -> None:
    bench = import_module("latentheads.experiments.studies.bench_mixers")
    file, figure = tmp_path / "mixers.json", tmp_path / "mixers.png"
    with painted(), pyro.validation_enabled(False):
        bench.main([*SHORT, "--json", str(file), "--figure", str(figure)])
    written = json.loads(file.read_text())
    assert written["metadata"]["window"] == 3
    memory = {(p["row"], p["length"]): p["memory"] for p in written["points"]}
    assert list(memory) == [(row, length) for length in (64, 512) for row in bench.ROWS]
    for row in bench.ROWS:
        grown = memory[row, 512] / memory[row, 64]
        assert grown < 1.05  # that of attention too, which is fused here
    assert figure.stat().st_size > 1000
