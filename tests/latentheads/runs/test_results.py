"""Results: typed, the same file in and out, and nothing else taken for one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from latentheads.runs.results import Figures, Results

FACTS: dict[str, Any] = {
    **{"kl_by_site": {}, "kl_how": {}, "parameters": 5, "tokens_per_second": None},
    **{"head_divergence": None, "head_divergence_by_chain": {}, "valid": {}, "test": {}},
}
SITE = "encoder.0.self.logits"


def test_the_file_of_a_run_is_read_and_written_the_same(tiny_run: Path) -> None:
    text = (tiny_run / "results.json").read_text()
    results = Results.read(json.loads(text))
    assert json.dumps(results.to_json(), indent=2) + "\n" == text
    assert results.test.bleu is not None
    assert results.test.rouge1 is None
    assert results.tasks == {}
    assert results.test.elbo == json.loads(text)["test"]["elbo"]


def test_figures_show_those_that_are_known() -> None:
    assert repr(Figures(elbo=-1.5, exact=0.0)) == "Figures(elbo=-1.5, exact=0.0)"
    assert "Figures()" in repr(Results())


def test_figures_that_nobody_made_are_left_out_and_unknown_ones_are_null() -> None:
    assert Figures().to_json() == {}
    known = Figures(tokens=7, sentences_per_second=2.5).to_json()
    assert (known["elbo"], known["tokens"], known["sentences_per_second"]) == (None, 7, 2.5)
    assert not {"bleu", "rouge1", "lead_rouge1"} & set(known)
    tasks = {"en-de": {"sentences": 3, "elbo": -1.0}}
    said = Results.read({**FACTS, "tasks": tasks}).to_json()["tasks"]["en-de"]
    assert next(iter(said)) == "sentences"
    assert (said["sentences"], said["elbo"]) == (3, -1.0)


@pytest.mark.parametrize(
    "broken",
    [
        *(None, [], {}, {"valid": {}}, {"valid": [], "test": 3}, "text"),
        {**FACTS, "valid": []},
        {**FACTS, "test": {"elbo": "x"}},
        {**FACTS, "test": {"tokens": 1.5}},
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
