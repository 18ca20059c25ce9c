"""How sure a run is of translations."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from latentheads.contrib.uncertainty import (
    Ensemble,
    HeadSamples,
    Output,
    PlattScaling,
    SingleModel,
    confidence,
    fit_platt_scaling,
    score_tokens,
)
from latentheads.contrib.uncertainty.confidence import (
    ConfidenceEstimator,
    ConfidenceScores,
    _min_of_words,
    bracket_doubtful_words,
)
from latentheads.contrib.uncertainty.token_scores import translate_with_ensemble
from latentheads.corpora import Part
from latentheads.data import Pairs
from latentheads.decoding.options import Decoding
from latentheads.runs.run import Run
from tests.latentheads.contrib.page.runs import make_run, small_corpus
from tests.tiny import jiggle

CORPUS = small_corpus()
DECODING = Decoding(max_new_tokens=4)
SOURCES, TARGETS = ["b a", "", "c e f"], ["a b c", "", "a d"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_run(tmp_path_factory.mktemp("confiding") / "run", CORPUS)


def fit(ensemble: Ensemble, part: Part, seed: int = 0) -> PlattScaling:
    """A line fitted on what a committee writes of a part."""
    tokens = translate_with_ensemble(ensemble, part, DECODING, seed)
    written = Output.of(ensemble, part, len(CORPUS.target), tokens, seed)
    return fit_platt_scaling(written.log_prob, written.correct)


def test_the_line_is_fitted_on_what_the_run_writes_of_validation(run: Run) -> None:
    assert ConfidenceEstimator.of(run, DECODING).platt_scaling == fit(
        SingleModel(run.model, run.guide), CORPUS.valid
    )


def test_a_run_may_be_named_by_its_folder(run: Run) -> None:
    with pytest.raises(ValueError, match=r"run is not a run folder: it has no config\.yaml$"):
        ConfidenceEstimator.of(run.path, DECODING)


def test_the_line_is_fitted_on_the_first_sentences_of_its_task(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confidence, "FITTED_SENTENCES", 1)
    valid = replace(CORPUS.test, task=np.array([0, 1, 1], np.int32))
    several = replace(run, user_corpus=replace(CORPUS, valid=valid))
    alone = SingleModel(run.model, run.guide)
    for task, number in ((None, 0), (0, 0), (1, 1)):
        assert ConfidenceEstimator.of(several, DECODING, task).platt_scaling == fit(
            alone, valid.take([number])
        )


def test_a_score_is_the_mean_over_tokens_and_a_word_as_sure_as_its_least(run: Run) -> None:
    confidant = ConfidenceEstimator.of(run, DECODING)
    first, empty, last = confidant.estimate(SOURCES, TARGETS)
    assert empty == ConfidenceScores(None, [])
    rows, sources = (CORPUS.target.encode_all(lines) for lines in (TARGETS[2:], SOURCES[2:]))
    figures = score_tokens(SingleModel(run.model, run.guide), Part(rows, sources), len(run.target))
    probability = confidant.platt_scaling(figures.by_temperature[1.0].log_prob)
    assert last.words == pytest.approx(probability[:2].tolist())
    assert last.score == pytest.approx(probability[:2].mean())
    assert len(first.words) == 3
    assert confidant.estimate(["", " "], ["", ""]) == [ConfidenceScores(None, [])] * 2


def test_draws_of_heads_are_asked_where_they_translate(run: Run) -> None:
    confidant = ConfidenceEstimator.of(run, replace(DECODING, num_samples=1), seed=7)
    assert isinstance(confidant.ensemble, HeadSamples)
    assert confidant.ensemble.members == 1
    assert confidant.platt_scaling == fit(confidant.ensemble, CORPUS.valid, seed=7)
    rows, sources = (CORPUS.target.encode_all(lines[:1]) for lines in (TARGETS, SOURCES))
    figures = score_tokens(confidant.ensemble, Part(rows, sources), len(run.target), seed=7)
    expected = confidant.platt_scaling(figures.by_temperature[1.0].log_prob[:-1])
    assert confidant.estimate(SOURCES[:1], TARGETS[:1])[0].words == pytest.approx(expected.tolist())


def test_a_word_is_as_sure_as_the_least_of_its_tokens() -> None:
    assert _min_of_words([0, 0, 1, None], [0.2, 0.9, 0.5, 0.1]) == [0.2, 0.5]
    assert _min_of_words([None], [0.1]) == []


def test_what_cannot_be_fitted_or_judged_is_refused(run: Run, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="translations must be as many as sentences, 3, got 1"):
        ConfidenceEstimator.of(run, DECODING).estimate(SOURCES, TARGETS[:1])
    without_corpus = replace(run, user_corpus=None)
    without_corpus.settings.__dict__["data"] = Pairs(str(tmp_path / "none"))
    with pytest.raises(ValueError, match="confidence is fitted on the run's validation text: "):
        ConfidenceEstimator.of(without_corpus, DECODING)


def test_a_scaling_that_was_kept_needs_no_corpus(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "scaling.json"
    fitted = ConfidenceEstimator.of(run, DECODING)
    fitted.save(path)
    without_corpus = replace(run, user_corpus=None)
    kept = ConfidenceEstimator.load(without_corpus, path, DECODING)
    assert kept.platt_scaling == fitted.platt_scaling
    assert kept.estimate(SOURCES, TARGETS) == fitted.estimate(SOURCES, TARGETS)
    for other, options, message in (
        (without_corpus, {"decoding": replace(DECODING, num_beams=3)}, "num_beams 1, got 3"),
        (without_corpus, {"decoding": DECODING, "task": 1}, "task None, got 1"),
        (
            replace(without_corpus, step=without_corpus.step + 5),
            {"decoding": DECODING},
            f"step {without_corpus.step}, got ",
        ),
    ):
        with pytest.raises(ValueError, match=f"scaling.json was fitted with {message}"):
            ConfidenceEstimator.load(other, path, **options)
    model, guide = deepcopy((without_corpus.model, without_corpus.guide))
    other = replace(
        without_corpus, model=jiggle(model, 0.1), guide=guide
    )  # such as of another text
    with pytest.raises(ValueError, match=r"scaling\.json was fitted with weights '.*', got '"):
        ConfidenceEstimator.load(other, path, DECODING)
    path.write_text("{}")
    with pytest.raises(ValueError, match=r"scaling\.json cannot be read: 'slope'"):
        ConfidenceEstimator.load(without_corpus, path)


def test_doubtful_words_stand_in_brackets() -> None:
    assert bracket_doubtful_words("a b  c d", ConfidenceScores(0.5, [0.9, 0.2, 0.5])) == "a [b] c d"
    assert bracket_doubtful_words("a b", ConfidenceScores(0.5, [0.9, 0.2]), 0.95) == "[a] [b]"
    assert bracket_doubtful_words("", ConfidenceScores(None, [])) == ""
