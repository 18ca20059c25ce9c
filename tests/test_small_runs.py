"""What is compared before and after a change that must change no number."""

from __future__ import annotations

from tests.small_runs import numbers_of


def test_every_number_and_text_is_compared_but_those_of_time() -> None:
    row = {"name": "tokens", "value": 7, "unit": "tokens"}
    step = {"step": 2, "valid": {"elbo": -1.5}, "name_of": "a", "skipped": None, "done": True}
    values = [*numbers_of([row, step, {"tokens_per_second": 3.5, "truth_gap": 0.5}])]
    assert values == ["7", "2", "-1.5", "'a'", "None", "True"]
