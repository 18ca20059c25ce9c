"""Results: typed, the same file in and out, and nothing else taken for one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from latentheads.metrics.scores import Scores
from latentheads.runs.results import EarlierVersionError, Results

FACTS: dict[str, Any] = {
    **{"kl_by_site": {}, "kl_how": {}, "parameters": 5, "tokens_per_second": None},
    **{"head_divergence": None, "head_divergence_by_chain": {}, "valid": [], "test": []},
}
SITE = "encoder.0.self.logits"


def test_the_file_of_a_run_is_read_and_written_the_same(tiny_run: Path) -> None:
    text = (tiny_run / "results.json").read_text()
    results = Results.read(json.loads(text))
    assert json.dumps(results.to_json(), indent=2) + "\n" == text
    assert results.test.bleu is not None
    assert results.test.rouge1 is None
    assert results.tasks == {}
    assert results.test.elbo == json.loads(text)["test"][0]["value"]


def test_tasks_and_averages_are_rows_too() -> None:
    rows = Scores.of({"elbo": -1.0, "sentences": 3}).to_json()
    results = Results.read({**FACTS, "tasks": {"en-de": rows}, "average": rows[:1]})
    assert results.tasks["en-de"].sentences == 3
    assert results.average == {"elbo": -1.0}
    assert results.to_json()["tasks"] == {"en-de": rows}


def test_results_of_an_earlier_version_say_so_in_one_line() -> None:
    with pytest.raises(EarlierVersionError, match=r"^results are of an earlier version.*anew$"):
        Results.read({**FACTS, "valid": {"elbo": -1.0}, "test": {"elbo": -1.0}})


@pytest.mark.parametrize(
    "broken",
    [
        *(None, [], {}, {"valid": {}}, {"valid": [], "test": 3}, "text"),
        {**FACTS, "valid": [1]},
        {**FACTS, "test": [{"name": "elbo", "value": "x"}]},
        {**FACTS, "tasks": []},
        {**FACTS, "tasks": {"de": {"elbo": 1.0}}},
        {**FACTS, "parameters": None},
        {**FACTS, "kl_by_site": {"x": 1.0}, "kl_how": {"x": "tied"}},
        {**FACTS, "kl_by_site": {SITE: 1.0}},
        {**FACTS, "perplexity": [{"mode": "sentences"}]},
    ],
)
def test_what_is_none_of_our_results_is_refused(broken: Any) -> None:
    with pytest.raises(ValueError, match=r"^results"):
        Results.read(broken)


def test_a_site_has_its_kl_and_how_it_was_computed() -> None:
    found = Results.read({**FACTS, "kl_by_site": {SITE: None}, "kl_how": {SITE: "analytic"}})
    assert found.kl_by_site == {SITE: None}
