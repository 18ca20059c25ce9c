"""Lines over updates, from what was noted while a run trained."""

from __future__ import annotations

import itertools
from typing import Any

from latentheads.contrib.page.curves import MAX_POINTS, gather_curves
from latentheads.files import finite

VALID = {"elbo": -2.0, "log_likelihood": -1.5, "plug_in": -1.0, "exact": None, "truth": -0.5}


def record(step: int, **more: Any) -> dict[str, Any]:
    return {"step": step, "objective": -3.0, "valid": VALID, **more}


def test_the_kl_of_a_chain_is_that_of_its_blocks() -> None:
    sites = {"encoder.0.self.logits": 0.25, "encoder.1.self.logits": 0.5}
    first = record(1, kl_by_site={**sites, "decoder.0.cross.logits": 1.0})
    second = record(2, kl_by_site={**sites, "encoder.0.self.selection": 4.0})
    third = record(3, kl_by_site={**sites, "encoder.1.self.logits": None})
    assert finite(gather_curves([first, second, third])["kl"]) == {
        "encoder-self": [0.75, 0.75, None],
        "decoder-cross": [1.0, 0, 0],
        "selection": [0, 4.0, 0],
    }


def test_heads_expected_to_be_active_are_a_mean_over_tasks() -> None:
    chances = {"encoder.0.self": [[0.5, 1.0], [0.0, 0.5]], "encoder.1.self": [[1.0, 1.0]]}
    assert gather_curves([record(1, selection=chances)])["active"] == {"encoder-self": [3.0]}


def test_the_exact_value_stands_in_the_place_of_the_plug_in_network() -> None:
    plain = gather_curves([record(1)])
    assert plain["bound"] == {
        "elbo": [-2.0],
        "log_likelihood": [-1.5],
        "plug_in": [-1.0],
        "objective": [-3.0],
    }
    assert plain["truth"] == -0.5
    some = {**VALID, "truth_sentences": 2, "sentences": 3}
    assert gather_curves([record(1, valid=some)])["truth_of"] == [2, 3]
    assert "truth_of" not in plain
    exact = record(2, valid={**VALID, "exact": -1.25})
    bound = gather_curves([record(1), exact])["bound"]
    assert "plug_in" not in bound
    assert bound["exact"] == [None, -1.25]


def test_long_runs_are_thinned_out_and_end_where_they_ended() -> None:
    steps = gather_curves([record(step) for step in range(1, 1001)])["steps"]
    assert len(steps) <= MAX_POINTS
    assert steps[-1] == 1000
    assert {b - a for a, b in itertools.pairwise(steps)} == {4}


def test_nothing_noted_makes_no_line() -> None:
    assert gather_curves([]) == {}
