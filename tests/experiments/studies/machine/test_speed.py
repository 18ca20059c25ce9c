"""Speed: what each row is compared with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from latentheads.experiments.studies.benchmarks.baselines import PRECISIONS, Setting
from latentheads.experiments.studies.machine import speed
from latentheads.experiments.studies.machine.speed import FUSED, SMALL, Speed, measure


@pytest.mark.parametrize("compiled", [False, True])
def test_a_row_is_compared_with_a_yardstick_of_its_own_mode(
    compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled rows come one by one, and the yardstick is compiled too."""
    asked: list[tuple[str, ...]] = []

    def race(made: Mapping[str, Any], precision: str, *rest: object) -> Iterator[Speed]:
        asked.append((*made, str(rest[-1])))
        for row in made:
            yield Speed("", row, "", precision, ms=2.0 if row == FUSED else 3.0)

    rows = {FUSED: lambda *_: None, "ours": lambda *_: None}
    monkeypatch.setattr(speed, "make_rows", lambda: rows)
    monkeypatch.setattr(speed, "_race", race)
    measures = [*measure(SMALL, Setting("cpu", 1), 1, compiled)]
    precisions = PRECISIONS[-1:] if compiled else PRECISIONS
    groups = [(FUSED, "True"), ("ours", "True")] if compiled else [(FUSED, "ours", "False")]
    assert asked == groups * len(precisions)
    pairs = [(one_measure.row, one_measure.ratio) for one_measure in measures]
    assert pairs == [(FUSED, 1.0), ("ours", 1.5)] * len(precisions)
