"""The frame of the benchmarks: the plan that was asked for, and the rows that are written."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import dataclass, fields, replace
from importlib import import_module
from itertools import chain
from pathlib import Path

import pytest

from latentheads.experiments.studies.benchmarks.baselines import Size
from latentheads.experiments.studies.benchmarks.command_line import (
    Plan,
    bench_parser,
    check_size,
    write,
)
from tests.experiments.programs import ROOT

NUMBERS = ("rounds", "heads")
SMALL = Size(width=8, heads=2)


@dataclass(frozen=True)
class Wide(Plan):
    """A plan with numbers of heads of its own, which nobody can ask for."""

    heads: tuple[int, ...] = (2, 4)


def test_a_plan_takes_what_was_asked_for_and_nothing_else() -> None:
    plan, parser = Wide(SMALL, 5, 1), bench_parser("some.py", None, Wide(SMALL, 5, 1), NUMBERS)
    assert plan.take(parser.parse_args([]), NUMBERS) == plan
    taken = plan.take(parser.parse_args(["--heads", "4", "--seed", "7"]), NUMBERS)
    assert taken == replace(plan, size=replace(SMALL, heads=4))
    assert plan.take(Namespace(rounds=2, heads=None, warmup=9), NUMBERS) == replace(plan, rounds=2)


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ({"vocabulary": 4}, "--vocabulary must exceed the 4 special tokens, got 4"),
        ({"heads": 3}, "heads must divide the width 8, got 3"),
    ],
)
def test_a_size_that_cannot_be_run_is_refused(size: dict[str, int], message: str) -> None:
    check_size(SMALL)
    with pytest.raises(ValueError, match=message):
        check_size(replace(SMALL, **size))


def test_rows_are_written_beside_what_they_depend_on(tmp_path: Path) -> None:
    write(None, {}, rows=[SMALL])
    write(tmp_path / "rows.json", {"seed": 1}, rows=[SMALL], growth={"heads": [SMALL]})
    written = json.loads((tmp_path / "rows.json").read_text())
    assert list(written) == ["metadata", "rows", "growth"]
    assert Size(**written["rows"][0]) == Size(**written["growth"]["heads"][0]) == SMALL


@pytest.mark.parametrize(
    ("file", "row"),
    [
        ("cpu", "bench.Result"),
        ("growth-cpu", "bench.Result"),
        ("multi30k-size", "bench.Result"),
        ("alignments-cpu", "bench_alignments.Point"),
        ("alignments-lm-cpu", "bench_alignments.Point"),
        ("gates-cpu", "bench_alignments.Point"),
        ("gates-before-cpu", "bench_alignments.Point"),
        ("decode-1-cpu", "bench_alignments.Point"),
        ("decode-5-cpu", "bench_alignments.Point"),
        ("decode-1-before-cpu", "bench_alignments.Point"),
        ("decode-5-before-cpu", "bench_alignments.Point"),
        ("decode-gates-1-cpu", "bench_alignments.Point"),
        ("decode-gates-5-cpu", "bench_alignments.Point"),
        ("decode-gates-1-before-cpu", "bench_alignments.Point"),
        ("decode-gates-5-before-cpu", "bench_alignments.Point"),
        ("decoding-cpu", "bench_decoding.Result"),
        ("length-cpu", "benchmarks.growth.Point"),
        ("mixers-cpu", "benchmarks.growth.Point"),
        ("pretrained-cpu", "benchmarks.growth.Point"),
        ("selection-cpu", "bench_selection.Point"),
        ("trained-cpu", "bench_trained.Point"),
        ("host-cpu", "bench_host.Point"),
    ],
)
def test_rows_that_are_kept_are_what_programs_write(file: str, row: str) -> None:
    kept = json.loads((ROOT / "experiments" / "results" / "bench" / f"{file}.json").read_text())
    module, name = row.rsplit(".", 1)
    given_fields = fields(getattr(import_module(f"latentheads.experiments.studies.{module}"), name))
    every = chain(kept.get("rows", kept.get("points")), *kept.get("growth", {}).values())
    assert {tuple(item) for item in every} == {tuple(field.name for field in given_fields)}
