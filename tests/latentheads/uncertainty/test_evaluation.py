"""Trials of tiny networks: every figure is that of the columns it is made of."""

from copy import copy
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from sacrebleu.metrics import CHRF

from latentheads.batch import EOS
from latentheads.decoding.translate import Decoding, map_batches
from latentheads.metrics.resampling import resample_indices
from latentheads.noise import fixed_noise
from latentheads.uncertainty import measures
from latentheads.uncertainty.calibration import edges_of_mass, sum_bins
from latentheads.uncertainty.edits import label_tokens
from latentheads.uncertainty.ensembles import HeadSamples, MCDropout, SingleModel
from latentheads.uncertainty.evaluation import (
    TEST,
    EnsembleEvaluation,
    Output,
    Texts,
    evaluate_ensemble,
    score_lines,
)
from latentheads.uncertainty.figures import (
    UNCERTAINTIES,
    fit_temperature,
    read_tokens,
    score_sentences,
    translate_with_ensemble,
    with_targets,
)
from latentheads.uncertainty.measures import (
    baseline_of,
    bins_of_law,
    compare_systems,
    compute_measures,
)
from latentheads.uncertainty.ranking import correlation, rejection_ratio, roc_area
from latentheads.uncertainty.scaling import fit_line
from tests.latentheads.page.runs import make_run, small_corpus
from tests.tiny import sizes

CORPUS = small_corpus()
LINES = ["a b c", "d $x$", "e"]
TEXTS = Texts(
    CORPUS.valid,
    replace(CORPUS.test, references=LINES),
    CORPUS.target,
    {"turned": replace(CORPUS.test.take([2, 0]), links=())},
)
WHOLE = {TEST: np.arange(3), "turned": np.arange(2)}
DECODING = Decoding(max_tokens=4)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("trial") / "run"
    return make_run(folder, CORPUS, network=sizes(dropout=0.3)).model


@pytest.fixture(scope="module")
def trial(model: Any) -> EnsembleEvaluation:
    return evaluate_ensemble(HeadSamples(model, members=3), TEXTS, DECODING, varied=2)


def test_temperature_and_line_are_fitted_on_validation(
    model: Any, trial: EnsembleEvaluation
) -> None:
    committee, types = HeadSamples(model, members=3), len(TEXTS.target)
    assert trial.temperature == fit_temperature(committee, TEXTS.valid, types)
    tokens = translate_with_ensemble(committee, TEXTS.valid, DECODING)
    written = Output.of(committee, TEXTS.valid, types, tokens, 0)
    assert trial.line == fit_line(written.log_prob, written.right)


def test_all_draws_of_a_trial_are_of_its_seed(model: Any) -> None:
    committee, types, written = HeadSamples(model, members=3), len(TEXTS.target), {}
    trial = evaluate_ensemble(committee, TEXTS, DECODING, 7, written=written)
    parts = {"valid": TEXTS.valid, TEST: TEXTS.test, **TEXTS.others}
    assert written == {
        n: translate_with_ensemble(committee, each, DECODING, 7) for n, each in parts.items()
    }
    assert trial.temperature == fit_temperature(committee, TEXTS.valid, types, 7)
    own = {name: with_targets(each, written[name]) for name, each in parts.items()}
    judged, mine, turned = (
        read_tokens(committee, part, types, seed=7)
        for part in (TEXTS.test, own[TEST], own["turned"])
    )
    assert trial.references.mean_log.tolist() == judged.mean_log.tolist()
    assert trial.output.figures.mean_log.tolist() == mine.mean_log.tolist()
    scores = score_sentences(turned)
    assert trial.scores["turned"]["mean_log"].tolist() == scores["mean_log"].tolist()
    held_out = Output.of(committee, TEXTS.valid, types, written["valid"], 7)
    assert trial.line == fit_line(held_out.log_prob, held_out.right)


def test_figures_of_references_are_means_over_their_tokens(trial: EnsembleEvaluation) -> None:
    found = compute_measures(trial)
    for temperature, ending in ((1.0, ""), (trial.temperature, "_scaled")):
        judged = trial.references.judged[temperature]
        assert found[f"nll{ending}"](WHOLE) == pytest.approx(-judged.log_prob.mean())
        assert found[f"brier{ending}"](WHOLE) == pytest.approx(judged.brier.mean())
        weighted = np.abs(judged.masses.sum(0)).sum() / len(judged.masses)
        assert found[f"ece_weighted{ending}"](WHOLE) == pytest.approx(weighted)
        inner = ~trial.references.ends
        excess = (judged.confidence - judged.right)[inner].mean()
        assert found[f"excess{ending}"](WHOLE) == pytest.approx(excess)
        bins = bins_of_law(trial.references, judged).bins()
        assert found[f"ece{ending}"](WHOLE) == pytest.approx(bins.error)
        columns = judged.confidence[inner], judged.right[inner], trial.references.sentence[inner]
        mass = sum_bins(*columns, 3, edges_of_mass(columns[0])).bins().error
        assert found[f"ece_mass{ending}"](WHOLE) == pytest.approx(mass)
        assert abs(mass - bins.error) > 1e-3


def test_figures_of_a_resample_are_those_of_its_sentences(trial: EnsembleEvaluation) -> None:
    found, twice = compute_measures(trial), {TEST: np.array([0, 0, 1]), "turned": np.array([1, 1])}
    log_prob = trial.references.judged[1.0].log_prob
    first, second = (log_prob[trial.references.sentence == place] for place in (0, 1))
    nats = np.concatenate([first, first, second])
    assert found["nll"](twice) == pytest.approx(-nats.mean())
    score, error = trial.scores[TEST]["total"], 1 - trial.chrf / 100
    chosen = score[[0, 0, 1]], error[[0, 0, 1]]
    assert found["prr_total"](twice) == pytest.approx(rejection_ratio(*chosen), nan_ok=True)
    other = trial.scores["turned"]["total"][[1, 1]]
    assert found["roc_turned_total"](twice) == pytest.approx(roc_area(chosen[0], other))


def test_what_is_written_is_compared_with_its_references(trial: EnsembleEvaluation) -> None:
    output, found = trial.output, compute_measures(trial)
    for place, tokens in enumerate(output.tokens):
        inner = [token for token in tokens if token != 2]
        reference = [token for token in CORPUS.test.targets[place].tolist() if token != 2]
        own = output.figures.sentence[output.inner] == place
        assert output.right[own].tolist() == label_tokens(inner, reference).tolist()
        assert trial.texts[place] == CORPUS.target.decode(list(tokens))
        chrf = CHRF().sentence_score(trial.texts[place], [LINES[place]]).score
        assert trial.chrf[place] == pytest.approx(chrf)
    probability = np.exp(output.log_prob)
    assert found["right"](WHOLE) == pytest.approx(output.right.mean())
    assert found["sure"](WHOLE) == pytest.approx(probability.mean())
    line = output.bins(trial.line(output.log_prob)).bins()
    assert found["own_ece_line"](WHOLE) == pytest.approx(line.error)
    uncertain = trial.scores[TEST]["log_prob"]
    expected = correlation(-uncertain, trial.chrf)
    assert found["chrf_log_prob"](WHOLE) == pytest.approx(expected, nan_ok=True)


def test_tokens_that_are_too_sure_do_not_make_up_for_others(trial: EnsembleEvaluation) -> None:
    output = replace(trial.output, right=np.arange(len(trial.output.right)) % 2 == 0)
    bins = output.bins(np.exp(output.log_prob)).bins()
    assert bins.error > abs(bins.excess) + 0.01
    found = compute_measures(replace(trial, output=output))
    assert found["own_ece"](WHOLE) == pytest.approx(bins.error)


def test_every_score_is_there_for_every_text(trial: EnsembleEvaluation) -> None:
    assert {*trial.scores} == {TEST, "turned"}
    assert list(trial.scores["turned"]) == [*UNCERTAINTIES, "unlike"]
    assert ((trial.scores[TEST]["unlike"] >= 0) & (trial.scores[TEST]["unlike"] <= 1)).all()
    timed = replace(trial, references=replace(trial.references, seconds=3.0))
    assert timed.seconds == pytest.approx(3000 / len(trial.references.token))
    assert TEXTS.sizes == {TEST: 3, "turned": 2}


def test_likeness_is_of_translations_by_a_draw_each(model: Any, trial: EnsembleEvaluation) -> None:
    committee, lines = HeadSamples(model, members=3), []
    for seed in (0, 1):
        with fixed_noise(seed, committee.device):
            tokens = map_batches(
                TEXTS.test, lambda batch: committee.write_by_one(batch, DECODING), [EOS]
            )
        lines.append([TEXTS.target.decode(each) for each in tokens])
    unlike = trial.scores[TEST]["unlike"]
    assert unlike == pytest.approx(1 - np.array(score_lines(*lines)) / 100)
    assert unlike.any()


@pytest.mark.parametrize("varied", [-1, 1])
def test_one_translation_has_no_other_to_be_like(model: Any, varied: int) -> None:
    said = f"^varied must be 0, for none, or at least 2, got {varied}$"
    with pytest.raises(ValueError, match=said):
        evaluate_ensemble(HeadSamples(model), TEXTS, DECODING, varied=varied)


def test_what_is_known_is_not_written_again(model: Any) -> None:
    known: dict[str, list[list[int]]] = {}
    alone = evaluate_ensemble(SingleModel(model), TEXTS, DECODING, written=known)
    assert {*known} == {"valid", TEST, "turned"}
    known[TEST] = [[5, 2], [6, 2], [7, 2]]
    again = evaluate_ensemble(MCDropout(model, members=2), TEXTS, DECODING, written=known)
    assert again.output.tokens == [[5, 2], [6, 2], [7, 2]]
    assert alone.members == 1
    assert "unlike" not in alone.scores[TEST]


def test_who_writes_nothing_has_no_figures_of_what_it_writes_and_all_others(model: Any) -> None:
    nothing = {"valid": [[EOS]] * len(TEXTS.valid), TEST: [[EOS]] * 3}
    trial = evaluate_ensemble(SingleModel(model), TEXTS, DECODING, written=nothing)
    assert (trial.line.slope, trial.line.offset) == (1, 0)
    (found,) = compare_systems([[trial]], TEXTS.sizes, resamples=40)
    for name in ("right", "sure", "own_ece", "own_ece_line"):
        assert np.isnan(found[name].score)
    assert found["nll"].low < found["nll"].score < found["nll"].high
    assert found["chrf"].score == 0


def test_resamples_of_a_single_sentence_say_nothing(model: Any, trial: EnsembleEvaluation) -> None:
    alone = evaluate_ensemble(SingleModel(model), TEXTS, DECODING)
    _, found = compare_systems([[trial], [alone]], TEXTS.sizes | {TEST: 1}, resamples=40)
    for name in ("nll", "brier", "chrf"):
        figure = found[name]
        assert np.isfinite([figure.score, figure.difference]).all()
        ends = figure.low, figure.high, figure.difference_low, figure.difference_high
        assert np.isnan(ends).all()
        assert figure.p is None


def test_systems_are_compared_on_the_same_resamples(model: Any, trial: EnsembleEvaluation) -> None:
    alone = evaluate_ensemble(SingleModel(model), TEXTS, DECODING)
    found = compare_systems([[trial], [trial, trial], [alone]], TEXTS.sizes, resamples=40)
    first, same, other = (system["nll"] for system in found)
    assert (first.p, first.difference) == (None, 0)
    assert (same.p, same.difference_low, same.difference_high) == (1, 0, 0)
    assert (same.low, same.high) == (pytest.approx(first.low), pytest.approx(first.high))
    assert len(same.each) == 2
    assert other.score == pytest.approx(-alone.references.judged[1.0].log_prob.mean())
    assert other.difference == pytest.approx(other.score - first.score)
    assert other.difference_low <= other.difference <= other.difference_high
    assert other.p is not None
    assert "prr_unlike" not in found[2]


def test_texts_are_resampled_each_by_a_seed_of_its_own(trial: EnsembleEvaluation) -> None:
    with mock.patch.object(measures, "resample_indices", wraps=resample_indices) as drawing:
        compare_systems([[trial]], TEXTS.sizes, resamples=40, seed=5)
    assert drawing.mock_calls == [mock.call(3, 40, 5), mock.call(2, 40, 6)]


def test_a_sentence_that_stands_in_two_texts_is_resampled_in_both(
    trial: EnsembleEvaluation,
) -> None:
    paired = replace(trial, scores={TEST: trial.scores[TEST], "copy": trial.scores[TEST]})
    known = [[paired]], {TEST: 3, "copy": 3}, 40
    (apart,), (together,) = compare_systems(*known), compare_systems(*known, paired=["copy"])
    assert apart["roc_copy_log_prob"].low < 0.5 < apart["roc_copy_log_prob"].high
    figure = together["roc_copy_log_prob"]  # of a text against itself, in every resample
    assert (figure.low, figure.score, figure.high) == (0.5, 0.5, 0.5)
    assert together["nll"] == apart["nll"]


def test_an_interval_ends_where_its_figure_can_be_no_more(trial: EnsembleEvaluation) -> None:
    inside, outside = np.array([0.0, 0.0, 5.0]), np.array([1.0, *[6.0] * 9])
    known = {TEST: {"log_prob": inside}, "other": {"log_prob": outside}}
    (found,) = compare_systems([[replace(trial, scores=known)]], {TEST: 3, "other": 10}, 40)
    area = found["roc_other_log_prob"]  # of most resamples 1, and of few far from it
    assert area.low < area.score < area.high == 1
    (found,), measured = compare_systems([[trial]], TEXTS.sizes, 40), compute_measures(trial)
    for name, figure in found.items():
        ends = [end for end in (figure.low, figure.high) if not np.isnan(end)]
        assert all(measured[name].least <= end <= measured[name].most for end in ends), name


def test_scores_are_held_against_the_log_probability_of_the_first_system() -> None:
    for name, baseline in (
        ("prr_mean_log", "prr_log_prob"),
        ("chrf_unlike", "chrf_log_prob"),
        ("roc_mean_log_total", "roc_mean_log_log_prob"),
        ("chrf", "chrf"),
        ("ece_scaled", "ece_scaled"),
    ):
        assert baseline_of(name) == baseline


def test_a_text_without_ends_that_are_foreseen_has_no_figure_of_them(
    trial: EnsembleEvaluation,
) -> None:
    never = replace(trial.references, ends=np.zeros_like(trial.references.ends))
    found = compute_measures(replace(trial, references=never))
    assert np.isnan(found["ece_end"](WHOLE))
    always = replace(trial.references, ends=np.ones_like(trial.references.ends))
    assert np.isnan(compute_measures(replace(trial, references=always))["ece_mass"](WHOLE))


def test_a_system_that_writes_nothing_has_no_share_of_right_tokens(
    trial: EnsembleEvaluation,
) -> None:
    nothing = np.zeros_like(trial.output.inner)
    output = replace(trial.output, inner=nothing, right=trial.output.right[:0])
    found = compute_measures(replace(trial, output=output))
    assert np.isnan([found["right"](WHOLE), found["sure"](WHOLE)]).all()


def test_a_score_that_is_constant_in_one_trial_is_that_of_a_system_all_the_same(
    trial: EnsembleEvaluation,
) -> None:
    level = {
        text: scores | {"unlike": 0 * scores["unlike"]} for text, scores in trial.scores.items()
    }
    varied = {
        text: scores | {"unlike": np.arange(len(scores["unlike"])) / 9}
        for text, scores in trial.scores.items()
    }
    constant, varying = replace(trial, scores=level), replace(trial, scores=varied)
    for trials in ([constant, varying], [varying, constant]):
        (found,) = compare_systems([trials], TEXTS.sizes, resamples=40)
        assert sorted(found["roc_turned_unlike"].each)[-1] == 0.5
        assert len(found["prr_unlike"].each) == 2
    (found,) = compare_systems([[constant, constant]], TEXTS.sizes, resamples=40)
    assert "prr_unlike" not in found


def test_draws_that_all_write_nothing_are_alike() -> None:
    assert score_lines(["", "a b", ""], ["", "a b", "a"]) == [100, 100, 0]


def test_case_counts_for_nothing_where_the_model_has_none(
    model: Any, trial: EnsembleEvaluation
) -> None:
    shouted = [line.upper() for line in trial.texts]
    texts = replace(TEXTS, test=replace(TEXTS.test, references=shouted))
    target = copy(TEXTS.target)
    target.lowercase = True
    for given, alike in ((texts, False), (replace(texts, target=target), True)):
        found = evaluate_ensemble(HeadSamples(model, members=3), given, DECODING)
        assert found.texts == trial.texts
        assert (found.chrf == 100).all() == alike
