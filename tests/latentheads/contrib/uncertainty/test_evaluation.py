"""Trials of tiny networks: every figure is that of the columns it is made of."""

from copy import copy, deepcopy
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from sacrebleu.metrics import CHRF

from latentheads.batch import EOS
from latentheads.contrib.uncertainty import measures
from latentheads.contrib.uncertainty.calibration import equal_mass_edges, sum_bins
from latentheads.contrib.uncertainty.edits import label_tokens
from latentheads.contrib.uncertainty.ensembles import (
    DeepEnsemble,
    HeadSamples,
    MCDropout,
    SingleModel,
)
from latentheads.contrib.uncertainty.evaluation import (
    TEST,
    EnsembleEvaluation,
    Output,
    Texts,
    evaluate_ensemble,
    sentence_chrf,
)
from latentheads.contrib.uncertainty.measures import (
    baseline_of,
    bin_predictions,
    compare_systems,
    compute_measures,
)
from latentheads.contrib.uncertainty.ranking import rejection_ratio, roc_auc
from latentheads.contrib.uncertainty.scaling import fit_platt_scaling
from latentheads.contrib.uncertainty.token_scores import (
    UNCERTAINTIES,
    fit_temperature,
    score_sentences,
    score_tokens,
    translate_with_ensemble,
    with_targets,
)
from latentheads.decoding.options import Decoding
from latentheads.decoding.translate import map_batches
from latentheads.metrics.resampling import Resamples
from latentheads.noise import fixed_noise
from tests.latentheads.contrib.page.runs import make_run, small_corpus
from tests.tiny import sizes
from tests.typechecking import unchecked

CORPUS = small_corpus()
LINES = ["a b c", "d $x$", "e"]
TEXTS = Texts(
    CORPUS.valid,
    replace(CORPUS.test, references=LINES),
    CORPUS.target,
    {"turned": replace(CORPUS.test.take([2, 0]), links=())},
)
WHOLE = {TEST: np.arange(3), "turned": np.arange(2)}
DECODING = Decoding(max_new_tokens=4)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("trial") / "run"
    return make_run(folder, CORPUS, network=sizes(dropout=0.3)).model


@pytest.fixture(scope="module")
def evaluation(model: Any) -> EnsembleEvaluation:
    return evaluate_ensemble(HeadSamples(model, members=3), TEXTS, DECODING, varied=2)


def test_all_draws_of_a_trial_are_of_its_seed(model: Any) -> None:
    ensemble, types, written = HeadSamples(model, members=3), len(TEXTS.target), {}
    evaluation = evaluate_ensemble(ensemble, TEXTS, DECODING, 7, translations=written)
    parts = {"valid": TEXTS.valid, TEST: TEXTS.test, **TEXTS.others}
    assert written == {
        n: translate_with_ensemble(ensemble, part, DECODING, 7) for n, part in parts.items()
    }
    assert evaluation.temperature == fit_temperature(ensemble, TEXTS.valid, types, 7)
    own = {name: with_targets(part, written[name]) for name, part in parts.items()}
    by_temperature, mine, turned = (
        score_tokens(ensemble, part, types, seed=7)
        for part in (TEXTS.test, own[TEST], own["turned"])
    )
    assert evaluation.references.mean_log_prob.tolist() == by_temperature.mean_log_prob.tolist()
    assert evaluation.output.figures.mean_log_prob.tolist() == mine.mean_log_prob.tolist()
    scores = score_sentences(turned)
    assert evaluation.scores["turned"]["mean_log"].tolist() == scores["mean_log"].tolist()
    held_out = Output.of(ensemble, TEXTS.valid, types, written["valid"], 7)
    assert evaluation.platt_scaling == fit_platt_scaling(held_out.log_prob, held_out.correct)


def test_figures_of_references_are_means_over_their_tokens(evaluation: EnsembleEvaluation) -> None:
    computed_measures = compute_measures(evaluation)
    for temperature, ending in ((1.0, ""), (evaluation.temperature, "_scaled")):
        by_temperature = evaluation.references.by_temperature[temperature]
        assert computed_measures[f"nll{ending}"](WHOLE) == pytest.approx(
            -by_temperature.log_prob.mean()
        )
        assert computed_measures[f"brier{ending}"](WHOLE) == pytest.approx(
            by_temperature.brier.mean()
        )
        weighted = np.abs(by_temperature.bin_sums.sum(0)).sum() / len(by_temperature.bin_sums)
        assert computed_measures[f"ece_weighted{ending}"](WHOLE) == pytest.approx(weighted)
        inner = ~evaluation.references.ends
        overconfidence = (by_temperature.confidence - by_temperature.correct)[inner].mean()
        assert computed_measures[f"excess{ending}"](WHOLE) == pytest.approx(overconfidence)
        bins = bin_predictions(evaluation.references, by_temperature).bins()
        assert computed_measures[f"ece{ending}"](WHOLE) == pytest.approx(bins.error)
        columns = (
            by_temperature.confidence[inner],
            by_temperature.correct[inner],
            evaluation.references.sentence[inner],
        )
        mass = sum_bins(*columns, 3, equal_mass_edges(columns[0])).bins().error
        assert computed_measures[f"ece_mass{ending}"](WHOLE) == pytest.approx(mass)
        assert abs(mass - bins.error) > 1e-3


def test_figures_of_a_resample_are_those_of_its_sentences(evaluation: EnsembleEvaluation) -> None:
    computed_measures = compute_measures(evaluation)
    twice = {TEST: np.array([0, 0, 1]), "turned": np.array([1, 1])}
    log_prob = evaluation.references.by_temperature[1.0].log_prob
    first, second = (log_prob[evaluation.references.sentence == index] for index in (0, 1))
    nats = np.concatenate([first, first, second])
    assert computed_measures["nll"](twice) == pytest.approx(-nats.mean())
    sums = evaluation.references.by_temperature[1.0].bin_sums
    sums = np.concatenate([sums[evaluation.references.sentence == index] for index in (0, 0, 1)])
    weighted = np.abs(sums.sum(0)).sum() / len(sums)
    assert computed_measures["ece_weighted"](twice) == pytest.approx(weighted)
    score, error = evaluation.scores[TEST]["total"], 1 - evaluation.chrf / 100
    chosen = score[[0, 0, 1]], error[[0, 0, 1]]
    assert computed_measures["prr_total"](twice) == pytest.approx(
        rejection_ratio(*chosen), nan_ok=True
    )
    other = evaluation.scores["turned"]["total"][[1, 1]]
    assert computed_measures["roc_turned_total"](twice) == pytest.approx(roc_auc(chosen[0], other))


def test_what_is_written_is_compared_with_its_references(evaluation: EnsembleEvaluation) -> None:
    output, computed_measures = evaluation.output, compute_measures(evaluation)
    for index, tokens in enumerate(output.tokens):
        inner = [token for token in tokens if token != 2]
        reference = [token for token in CORPUS.test.targets[index].tolist() if token != 2]
        own = output.figures.sentence[output.inner] == index
        assert output.correct[own].tolist() == label_tokens(inner, reference).tolist()
        assert evaluation.texts[index] == CORPUS.target.decode(list(tokens))
        chrf = CHRF().sentence_score(evaluation.texts[index], [LINES[index]]).score
        assert evaluation.chrf[index] == pytest.approx(chrf)
    probability = np.exp(output.log_prob)
    assert computed_measures["right"](WHOLE) == pytest.approx(output.correct.mean())
    assert computed_measures["sure"](WHOLE) == pytest.approx(probability.mean())
    platt_scaling = output.bins(evaluation.platt_scaling(output.log_prob)).bins()
    assert computed_measures["own_ece_line"](WHOLE) == pytest.approx(platt_scaling.error)
    likely, chrf = -evaluation.scores[TEST]["log_prob"], np.array([0.0, 50.0, 90.0])
    measure = compute_measures(replace(evaluation, chrf=chrf))["chrf_log_prob"]
    assert measure(WHOLE) == pytest.approx(np.corrcoef(likely, chrf)[0, 1])


def test_tokens_that_are_too_sure_do_not_make_up_for_others(evaluation: EnsembleEvaluation) -> None:
    output = replace(evaluation.output, correct=np.arange(len(evaluation.output.correct)) % 2 == 0)
    bins = output.bins(np.exp(output.log_prob)).bins()
    assert len(bins.count) == 20  # as in InfECE, where references have 15
    assert bins.error > abs(bins.overconfidence) + 0.01
    computed_measures = compute_measures(replace(evaluation, output=output))
    assert computed_measures["own_ece"](WHOLE) == pytest.approx(bins.error)


def test_every_score_is_there_for_every_text(evaluation: EnsembleEvaluation) -> None:
    frame = evaluation.to_frame()
    assert frame["text"].unique().tolist() == list(evaluation.scores)
    total = frame.loc[frame["text"] == "turned", "total"]
    assert total.tolist() == evaluation.scores["turned"]["total"].tolist()
    assert {*evaluation.scores} == {TEST, "turned"}
    assert list(evaluation.scores["turned"]) == [*UNCERTAINTIES, "unlike"]
    unlike = evaluation.scores[TEST]["unlike"]
    assert ((unlike >= 0) & (unlike <= 1)).all()
    timed = replace(evaluation, references=replace(evaluation.references, seconds=3.0))
    assert timed.seconds == pytest.approx(3000 / len(evaluation.references.token))
    assert TEXTS.sizes == {TEST: 3, "turned": 2}


def test_likeness_is_of_translations_by_a_draw_each(
    model: Any, evaluation: EnsembleEvaluation
) -> None:
    ensemble, lines = HeadSamples(model, members=3), []
    for seed in (0, 1):
        with fixed_noise(seed, ensemble.device):
            tokens = map_batches(
                TEXTS.test, lambda batch: ensemble.translate_with_one_sample(batch, DECODING), [EOS]
            )
        lines.append([TEXTS.target.decode(token) for token in tokens])
    unlike = evaluation.scores[TEST]["unlike"]
    assert unlike == pytest.approx(1 - np.array(sentence_chrf(*lines)) / 100)
    assert unlike.any()


def test_what_is_known_is_not_written_again(model: Any) -> None:
    expected: dict[str, list[list[int]]] = {}
    alone = evaluate_ensemble(SingleModel(model), TEXTS, DECODING, translations=expected)
    assert {*expected} == {"valid", TEST, "turned"}
    expected[TEST] = [[5, 2], [6, 2], [7, 2]]
    again = evaluate_ensemble(MCDropout(model, members=2), TEXTS, DECODING, translations=expected)
    assert again.output.tokens == [[5, 2], [6, 2], [7, 2]]
    assert alone.members == 1
    assert "unlike" not in alone.scores[TEST]


def test_who_writes_nothing_has_no_figures_of_what_it_writes_and_all_others(model: Any) -> None:
    nothing = {"valid": [[EOS]] * len(TEXTS.valid), TEST: [[EOS]] * 3}
    evaluation = evaluate_ensemble(SingleModel(model), TEXTS, DECODING, translations=nothing)
    assert (evaluation.platt_scaling.slope, evaluation.platt_scaling.offset) == (1, 0)
    (compare_system,) = compare_systems([[evaluation]], TEXTS.sizes, resamples=40)
    for name in ("right", "sure", "own_ece", "own_ece_line"):
        assert np.isnan(compare_system[name].score)
    assert compare_system["nll"].low < compare_system["nll"].score < compare_system["nll"].high
    assert compare_system["chrf"].score == 0


def test_resamples_of_a_single_sentence_say_nothing(
    model: Any, evaluation: EnsembleEvaluation
) -> None:
    alone = evaluate_ensemble(SingleModel(model), TEXTS, DECODING)
    _, actual = compare_systems([[evaluation], [alone]], TEXTS.sizes | {TEST: 1}, resamples=40)
    for name in ("nll", "brier", "chrf"):
        figure = actual[name]
        assert np.isfinite([figure.score, figure.difference]).all()
        ends = figure.low, figure.high, figure.difference_low, figure.difference_high
        assert np.isnan(ends).all()
        assert figure.p is None


def test_an_area_with_a_single_other_sentence_has_no_interval(
    evaluation: EnsembleEvaluation,
) -> None:
    (actual,) = compare_systems([[evaluation]], TEXTS.sizes | {"turned": 1}, resamples=40)
    area = actual["roc_turned_log_prob"]
    assert np.isfinite(area.score)
    assert np.isnan([area.low, area.high]).all()
    assert np.isfinite([actual["nll"].low, actual["nll"].high]).all()


def test_systems_are_compared_on_the_same_resamples(
    model: Any, evaluation: EnsembleEvaluation
) -> None:
    alone = evaluate_ensemble(SingleModel(model), TEXTS, DECODING)
    systems = compare_systems(
        [[evaluation], [evaluation, evaluation], [alone]], TEXTS.sizes, resamples=40
    )
    first, same, other = (system["nll"] for system in systems)
    assert (first.p, first.difference) == (None, 0)
    assert (same.p, same.difference_low, same.difference_high) == (1, 0, 0)
    assert (same.low, same.high) == (pytest.approx(first.low), pytest.approx(first.high))
    assert len(same.each) == 2
    assert other.score == pytest.approx(-alone.references.by_temperature[1.0].log_prob.mean())
    assert other.difference == pytest.approx(other.score - first.score)
    assert other.difference_low <= other.difference <= other.difference_high
    assert other.p is not None
    assert "prr_unlike" not in systems[2]


def test_texts_are_resampled_each_by_a_seed_of_its_own(evaluation: EnsembleEvaluation) -> None:
    with mock.patch.object(measures, "Resamples", wraps=Resamples) as drawn:
        compare_systems([[evaluation]], TEXTS.sizes, resamples=40, seed=5)
    assert drawn.mock_calls == [mock.call(3, 40, 5), mock.call(2, 40, 6)]


def test_a_sentence_that_stands_in_two_texts_is_resampled_in_both(
    evaluation: EnsembleEvaluation,
) -> None:
    paired = replace(evaluation, scores=dict.fromkeys((TEST, "copy"), evaluation.scores[TEST]))
    expected = [[paired]], {TEST: 3, "copy": 3}, 40
    (apart,), (together,) = compare_systems(*expected), compare_systems(*expected, paired=["copy"])
    assert apart["roc_copy_log_prob"].low < 0.5 < apart["roc_copy_log_prob"].high
    figure = together["roc_copy_log_prob"]  # of a text against itself, in every resample
    assert (figure.low, figure.score, figure.high) == (0.5, 0.5, 0.5)
    assert together["nll"] == apart["nll"]


def test_an_interval_ends_where_its_figure_can_be_no_more(evaluation: EnsembleEvaluation) -> None:
    inside, outside = np.array([0.0, 0.0, 5.0]), np.array([1.0, *[6.0] * 9])
    expected = {TEST: {"log_prob": inside}, "other": {"log_prob": outside}}
    (compare_system,) = compare_systems(
        [[replace(evaluation, scores=expected)]], {TEST: 3, "other": 10}, 40
    )
    area = compare_system["roc_other_log_prob"]  # of most resamples 1, and of few far from it
    assert area.low < area.score < area.high == 1
    (compare_system,), measured = (
        compare_systems([[evaluation]], TEXTS.sizes, 40),
        compute_measures(evaluation),
    )
    for name, figure in compare_system.items():
        ends = [end for end in (figure.low, figure.high) if not np.isnan(end)]
        assert all(measured[name].minimum <= end <= measured[name].maximum for end in ends), name


def test_what_other_scores_are_compared_with_is_measured_though_it_is_constant(
    evaluation: EnsembleEvaluation,
) -> None:
    scores = {TEST: {"log_prob": np.ones(3), "total": np.ones(3), "data": np.arange(3.0)}}
    constant = replace(evaluation, scores=scores, chrf=np.array([0.0, 50.0, 90.0]))
    (figures,) = compare_systems([[constant]], {TEST: 3}, 40)
    assert {name for name in figures if name[:4] == "prr_"} == {"prr_log_prob", "prr_data"}
    assert figures["prr_data"].difference == pytest.approx(-100)
    measure = compute_measures(constant)["prr_data"]
    assert measure.minimum < measure(WHOLE), "sure of its errors, it is worse than none"


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
    evaluation: EnsembleEvaluation,
) -> None:
    never = replace(evaluation.references, ends=np.zeros_like(evaluation.references.ends))
    computed_measures = compute_measures(replace(evaluation, references=never))
    assert np.isnan(computed_measures["ece_end"](WHOLE))
    always = replace(evaluation.references, ends=np.ones_like(evaluation.references.ends))
    assert np.isnan(compute_measures(replace(evaluation, references=always))["ece_mass"](WHOLE))


def test_a_score_that_is_constant_in_one_trial_is_that_of_a_system_all_the_same(
    evaluation: EnsembleEvaluation,
) -> None:
    def with_unlike(step: float) -> EnsembleEvaluation:
        scores = {
            text: score | {"unlike": step * np.arange(len(score["unlike"]))}
            for text, score in evaluation.scores.items()
        }
        return replace(evaluation, scores=scores)

    constant, varying = with_unlike(0), with_unlike(1 / 9)
    for evaluations in ([constant, varying], [varying, constant]):
        (compare_system,) = compare_systems([evaluations], TEXTS.sizes, resamples=40)
        assert sorted(compare_system["roc_turned_unlike"].each)[-1] == 0.5
        assert len(compare_system["prr_unlike"].each) == 2
    (compare_system,) = compare_systems([[constant, constant]], TEXTS.sizes, resamples=40)
    assert "prr_unlike" not in compare_system


def test_rounding_is_no_disagreement_of_members_that_are_alike(model: Any) -> None:
    single = deepcopy(model).float()
    alike = evaluate_ensemble(DeepEnsemble([single] * 3), TEXTS, DECODING)
    assert max(np.ptp(alike.scores[TEST][name]) for name in ("knowledge", "pairs", "reverse")) > 0
    assert measures.varying_scores([alike]) == {"log_prob", "mean_log", "total", "data"}


def test_draws_that_all_write_nothing_are_alike() -> None:
    assert sentence_chrf(["", "a b", ""], ["", "a b", "a"]) == [100, 100, 0]


def test_case_counts_for_nothing_where_the_model_has_none(
    model: Any, evaluation: EnsembleEvaluation
) -> None:
    shouted = [platt_scaling.upper() for platt_scaling in evaluation.texts]
    texts = replace(TEXTS, test=replace(TEXTS.test, references=shouted))
    target = copy(TEXTS.target)
    target.lowercase = True
    for given, alike in ((texts, False), (replace(texts, target=target), True)):
        ensemble = evaluate_ensemble(HeadSamples(model, members=3), given, DECODING)
        assert ensemble.texts == evaluation.texts
        assert (ensemble.chrf == 100).all() == alike


def test_texts_of_an_evaluation_are_no_part(model: Any) -> None:
    with pytest.raises(ValueError, match=r"^texts must be Texts\(valid, test, target, others\)"):
        unchecked(evaluate_ensemble)(HeadSamples(model), TEXTS.test, DECODING)
