"""Tables of results: a figure that is missing leaves its cell empty, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def results(tiny_run: Path) -> dict[str, Any]:
    return dict(json.loads((tiny_run / "results.json").read_text()))


def row(table: str, title: str) -> list[str]:
    found = next(line for line in table.splitlines() if line.strip().startswith(title))
    return found.strip().removeprefix(title).split()


def test_a_truth_that_one_part_lacks_is_left_out_there_alone(results: dict[str, Any]) -> None:
    """A held-out word that training did not have hides the truth of its part."""
    from tables import result_table

    results["valid"] |= {"truth": None, "elbo": -2.0}
    results["test"] |= {"truth": -1.25, "elbo": -2.0}
    table = result_table(results)
    assert row(table, "true log p(y | x)") == ["-1.2500"]
    assert row(table, "truth less bound") == ["0.7500"]
    results["valid"]["truth"], results["test"]["truth"] = -1.5, None
    table = result_table(results)
    assert row(table, "true log p(y | x)") == ["-1.5000"]
    assert row(table, "truth less bound") == ["0.5000"]
    results["valid"]["truth"] = None
    assert "true log p" not in result_table(results)


FIGURES = ("elbo", "log_likelihood", "kl", "iwae", "plug_in", "truth", "effective_sample_size")


@pytest.mark.parametrize("part", ["valid", "test"])
@pytest.mark.parametrize("name", [*FIGURES, "pareto_k", "bleu", "chrf", "paper_bleu"])
def test_every_table_survives_a_missing_figure(
    results: dict[str, Any], part: str, name: str
) -> None:
    from tables import are_printable, result_table

    results["test"]["pareto_k"] = 0.25
    results["valid"]["pareto_k"] = 0.75
    rows = len(result_table(results).splitlines())
    results[part][name] = None
    assert are_printable(results)
    assert len(result_table(results).splitlines()) == rows


@pytest.mark.parametrize("broken", [None, [], {}, {"valid": {}}, {"valid": [], "test": 3}, "text"])
def test_what_is_none_of_our_results_cannot_be_printed(broken: Any) -> None:
    from tables import are_printable

    assert not are_printable(broken)
