"""Results: typed, the same file in and out, and nothing else taken for one."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from latentheads.inference.evaluation import Report
from latentheads.metrics.scores import Scores
from latentheads.runs.reporter import Reporter
from latentheads.runs.results import Results, complete, lacking
from tests.experiments.programs import SHORT, TINY, inside, painted, results_of

FACTS: dict[str, Any] = {
    **{"kl_by_site": {}, "kl_how": {}, "parameters": 5, "tokens_per_second": None},
    **{"head_divergence": None, "head_divergence_by_attention_type": {}, "valid": [], "test": []},
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


def test_a_key_of_earlier_reports_is_read() -> None:
    by_type = {"encoder-self": 0.25}
    earlier = {k: v for k, v in FACTS.items() if k != "head_divergence_by_attention_type"}
    results = Results.read({**earlier, "head_divergence_by_chain": by_type})
    assert results.to_json()["head_divergence_by_attention_type"] == by_type


@pytest.mark.parametrize(
    "broken",
    [
        *(None, [], {}, {"valid": {}}, {"valid": [], "test": 3}, "text"),
        {**FACTS, "valid": [1]},
        {**FACTS, "test": [{"name": "elbo", "value": "x"}]},
        {**FACTS, "tasks": []},
        {**FACTS, "tasks": {"de": {"elbo": 1.0}}},
        {**FACTS, "parameters": None},
        {**FACTS, "perplexity": [{"mode": "sentences"}]},
    ],
)
def test_what_is_none_of_our_results_is_refused(broken: Any) -> None:
    with pytest.raises(ValueError, match=r"^results"):
        Results.read(broken)


def test_a_site_has_its_kl_and_how_it_was_computed() -> None:
    results = Results.read({**FACTS, "kl_by_site": {SITE: None}, "kl_how": {SITE: "analytic"}})
    assert results.kl_by_site == {SITE: None}


NO_MEMORY = (
    "[enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory: you "
    "tried to allocate 51539607552 bytes. Error code 12 (Cannot allocate memory)"
)


def fails(*_: Any, **__: Any) -> Any:
    raise RuntimeError(NO_MEMORY)


def kept(results: dict[str, Any], sections: dict[str, Any]) -> list[dict[str, Any]]:
    """What was written, each time."""
    records: list[dict[str, Any]] = []
    complete(results, sections, lambda message: records.append(json.loads(json.dumps(message))))
    return records


def test_what_is_kept_says_what_it_still_lacks() -> None:
    sections = {"one": lambda: {"test": {"a": 1}}, "two": lambda: {"test": {"b": 2}, "c": [3]}}
    first, second, last = kept({"test": {}, "c": []}, sections)
    waiting = "not done yet"
    assert first == {"test": {}, "c": [], "missing": {"one": waiting, "two": waiting}}
    assert second == {"test": {"a": 1}, "c": [], "missing": {"two": waiting}}
    assert last == {"test": {"a": 1, "b": 2}, "c": [3]}


def test_what_fails_is_named_and_what_follows_is_done() -> None:
    breaks = mock.Mock(side_effect=ZeroDivisionError("by zero"))
    last = kept({}, {"heads": fails, "plots": breaks, "last": lambda: {"a": float("nan")}})[-1]
    memory = "out of memory: 51,539,607,552 bytes asked for at once"
    missing = {"heads": memory, "plots": "ZeroDivisionError: by zero"}
    assert last == {"a": None, "missing": missing}
    assert lacking(last) == f"heads ({memory}), plots (ZeroDivisionError: by zero)"
    assert lacking({"a": 1}) == ""


def test_what_stops_the_program_leaves_what_was_done() -> None:
    lines: list[str] = []
    sections = {"a": dict, "b": mock.Mock(side_effect=KeyboardInterrupt)}
    with pytest.raises(KeyboardInterrupt):
        complete({}, sections, lambda message: lines.append(json.dumps(message)))
    assert json.loads(lines[-1]) == {"missing": {"b": "not done yet"}}


def test_a_training_outlives_a_report_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights are those of the first command; the second makes the report whole."""
    words = [*TINY, *SHORT, "--network.layers=1", "--out", str(tmp_path)]
    with painted(), monkeypatch.context() as patched:
        patched.setattr("latentheads.decoding.translate.translate", fails)
        patched.setattr("latentheads.contrib.plot.report_sections.draw_kl", fails)
        done = inside("run.py", *words)
    weights = (tmp_path / "checkpoints" / "last.safetensors").read_bytes()
    lacked = results_of(tmp_path)
    assert done.returncode == 1
    assert f"written to {tmp_path}" in done.stdout
    why = "out of memory: 51,539,607,552 bytes asked for at once"
    missing = lacked.pop("missing")
    index, _, short = missing.pop("translations").partition(": ")
    assert (index.split()[0], short, missing) == ("sentence", why, {"plots": why})
    assert done.stderr.splitlines()[-1] == (
        f"run.py: error: the report has no translations ({index}: {why}), plots ({why}); "
        "the same command goes on with it"
    )
    assert inside("run.py", *words).returncode == 0
    assert (tmp_path / "checkpoints" / "last.safetensors").read_bytes() == weights
    whole = results_of(tmp_path)
    assert whole["test"]["chrf"] >= 0
    assert whole["test"].items() > lacked.pop("test").items()
    assert {name: whole[name] for name in lacked} == lacked


@pytest.mark.parametrize("part", ["valid", "test"])
def test_a_bound_that_leaks_is_told_beside_its_figures(part: str) -> None:
    reporter = object.__new__(Reporter)  # what it has found already is all that it needs here
    reporter.corpus = SimpleNamespace(source=None, tasks=())  # type: ignore[assignment]
    figures = (-1.0, -1.0, 0.0, -1.0, 1, -1.0, 9, 1.0, None, None)
    reporter._reports = {name: Report(*figures) for name in ("valid", "test")}
    section = reporter.sections({})["a true bound"]
    assert section() == {}
    reporter._reports[part].leak = "the mean bound lies above the true log p"
    last = kept({}, {"test": reporter.sections({})["valid"], "a true bound": section})[-1]
    assert last["missing"] == {"a true bound": f"{part}: the mean bound lies above the true log p"}
    assert last["valid"][0]["value"] == -1.0


def test_blocks_of_a_side_without_tasks_are_those_of_every_task() -> None:
    encoder = {"tasks": [""], "chosen": {"encoder.0.self": [[1.0, 0.0, 1.0]]}}
    decoder = {"tasks": ["de", "nl"], "chosen": {"decoder.0.self": [[0.0, 1.0, 0.0], [0.0] * 3]}}
    both = Results(selection={"encoder-self": encoder, "decoder-self": decoder})
    assert both.heads_by_task == {
        "de": {"encoder.0.self": [0, 2], "decoder.0.self": [1]},
        "nl": {"encoder.0.self": [0, 2], "decoder.0.self": []},
    }
    alone = Results(selection={"encoder-self": encoder})
    assert alone.heads_by_task == {"": {"encoder.0.self": [0, 2]}}
    assert Results().heads_by_task == {}
