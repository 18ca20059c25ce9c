"""The head of a page: what a run is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from latentheads.contrib.page.facts import gather_facts, list_scores
from latentheads.contrib.speech.data import Speech
from latentheads.metrics.compared import METRICS
from latentheads.metrics.scores import SCORES
from latentheads.runs.settings import Settings
from tests.latentheads.contrib.page.runs import make_run, small_corpus


def test_a_page_says_which_weights_it_shows_and_which_were_reported(tmp_path: Path) -> None:
    messages = {}
    for name, reported in (("same", 7), ("other", 1000), ("unsaid", 0)):
        done = {"steps": 1234, "reported_step": reported} if reported else {}
        run = make_run(tmp_path / name, small_corpus(text=True), **done)
        facts = gather_facts(run, name)
        messages[name] = facts["steps"], facts["other"]
    other = "reported of step 1,000; heads and sentences are of step 7"
    assert messages == {
        "same": ("1,234 trained; weights of step 7", None),
        "other": ("1,234 trained; weights of step 7", other),
        "unsaid": ("weights of step 7", None),
    }


def test_every_score_has_a_title_and_says_what_it_is() -> None:
    scores = list_scores()
    assert {*METRICS, "elbo", "truth_gap"} <= set(scores)
    assert all(row["title"] == SCORES[name].heading for name, row in scores.items())
    assert scores["accuracy"]["meaning"] == "of the translations: exact matches."
    assert (scores["iwae"]["estimates"], scores["elbo"]["estimates"]) == ("exact", None)
    assert not any("{" in row["meaning"] for row in scores.values())


def test_an_option_that_is_not_the_default_has_its_full_name(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", small_corpus())
    before = set(gather_facts(run, "run")["changed"])
    run.settings = replace(run.settings, train=replace(run.settings.train, steps=1237))
    facts = gather_facts(run, "run")
    assert set(facts["changed"]) - before == {"train.steps"} - before
    assert "train.steps" in facts["changed"]
    assert facts["options"]["train.steps"] == 1237


def test_defaults_are_those_of_the_classes_that_a_run_has_chosen(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", small_corpus())
    options = {
        "latents": "copy+logits",
        "guide": {"class": "mean-field", "scale": 0.25},
        "logits": {"prior": "residual"},
        "copy": {"width": 7},
        "data": {"class": "pairs", "folder": "here", "target": "fi"},
        "disagreement": {"kinds": "output"},
        "train": {"optimizer": {"class": "nag"}, "steps": 1237},
    }
    run.settings = Settings.from_options(options)
    assert set(gather_facts(run, "run")["changed"]) == {
        *("latents", "guide.class", "guide.scale", "logits.prior.class", "copy.width"),
        *("data.class", "data.folder", "data.target"),
        *("train.optimizer.class", "train.steps"),
        "disagreement.kinds",
    }


def test_a_run_that_is_not_finished_has_nothing_reported(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", small_corpus())
    facts = gather_facts(run, "run")
    assert facts["finished"]
    assert facts["writes"] == "translation"
    run.path.joinpath("results.json").unlink()
    del run.results
    run.settings = replace(run.settings, data=Speech("folder"))
    facts = gather_facts(run, "run")
    assert facts["writes"] == "transcript"
    assert not facts["finished"]
    assert facts["figures"] == {}
    assert facts["steps"] == "weights of step 7"
