"""The overlap of sets of heads, in every study that measures it."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from latentheads.experiments.studies.subsets.overlap import mean_jaccard
from latentheads.experiments.studies.subsets.rankings import jaccard
from latentheads.experiments.studies.word_times import stability as word_times
from tests.experiments.studies.word_times.cached import make_cached


def test_overlap_is_intersection_over_union() -> None:
    assert mean_jaccard([{0, 1}, {0, 2}]) == pytest.approx(1 / 3)
    assert mean_jaccard([set(), set()]) == 1
    assert mean_jaccard([{0, 1}, set()]) == 0
    assert mean_jaccard([{0, 1}, {0, 2}, set()]) == pytest.approx(1 / 9)


def test_two_empty_sets_agree_in_every_study() -> None:
    assert jaccard([{"a": []}, {"a": []}]) == 1
    chosen = {"none": set[Any](), "one": {(0, 1)}}
    with mock.patch.object(word_times, "select_heads", return_value=chosen):
        rows = word_times.measure_stability([make_cached("pool/0", ["a"])])
    assert all(row["jaccard"] == 1 for by_set in rows.values() for row in by_set.values())
