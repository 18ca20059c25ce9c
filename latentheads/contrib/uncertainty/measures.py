"""All measures of an evaluation, with bootstrap intervals and paired tests over sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from latentheads.contrib.uncertainty.calibration import (
    Bins,
    BinSums,
    equal_mass_edges,
    equal_width_edges,
    sum_bins,
)
from latentheads.contrib.uncertainty.evaluation import DISSIMILARITY, TEST, EnsembleEvaluation
from latentheads.contrib.uncertainty.ranking import correlation, rejection_ratio, roc_auc
from latentheads.contrib.uncertainty.token_scores import UNCERTAINTIES, TokenEvaluation, TokenScores
from latentheads.metrics.resampling import SEED, Resampled, Resamples, estimate_systems

ROUNDING = 1e-5
"""Differences of uncertainties that float32 may make where members agree, in nats per token."""

SentenceIndices = Mapping[str, Int[ndarray, " sentence"]]
"""The indices of sentences of each text, with repetitions in a resample."""


@dataclass(frozen=True)
class Measure:
    """A measure as a function of sentences.

    Attributes:
        at: Computes it.
        minimum: Its minimum.
        maximum: Its maximum.
        text: The text that it compares the test part with, if any.
    """

    at: Callable[[SentenceIndices], float]
    minimum: float = 0.0
    maximum: float = 1.0
    text: str = TEST

    def __call__(self, indices: SentenceIndices) -> float:
        """Computes the measure on some sentences."""
        return self.at(indices)


def varying_scores(evaluations: Sequence[EnsembleEvaluation]) -> set[str]:
    """The uncertainty scores that are not constant in at least one evaluation of a system.

    Scores of disagreement are 0 everywhere, or rounding errors, if all members are alike.
    """
    return {
        name
        for evaluation in evaluations
        for name, values in evaluation.scores[TEST].items()
        if name == "log_prob" or np.ptp(values) > ROUNDING
    }


def compute_measures(
    evaluation: EnsembleEvaluation, scores: Collection[str] | None = None
) -> dict[str, Measure]:
    """All measures of an evaluation by name, as functions of the sentences.

    On references: ``nll``, ``brier``; ``ece`` with bins of equal width, ``ece_mass`` of equal mass,
    ``excess`` (overconfidence), at positions whose likeliest token is not EOS; ``ece_end`` where it
    is EOS; ``ece_weighted``, of all probabilities at all positions; each with suffix ``_scaled`` at
    the fitted temperature. On translations: ``chrf``; ``right`` and ``sure`` (accuracy and mean
    confidence of tokens), ``own_ece`` and ``own_ece_line`` (with Platt scaling). For each score
    ``prr_SCORE``, ``chrf_SCORE`` (correlation of the negative score with chrF), and for each
    out-of-domain text ``roc_TEXT_SCORE``.

    Args:
        evaluation: The evaluation.
        scores: Names of the uncertainty scores; None for those that are not constant.
    """
    references = evaluation.references
    measures: dict[str, Measure] = {}
    for suffix, temperature in (("", 1.0), ("_scaled", evaluation.temperature)):
        tokens = references.by_temperature[temperature]
        of_temperature = _measure_predictions(references, tokens)
        measures |= {f"{name}{suffix}": measure for name, measure in of_temperature.items()}
    measures |= _measure_output(evaluation)
    error = 1 - evaluation.chrf / 100
    names = varying_scores([evaluation]) if scores is None else scores
    for name in (name for name in evaluation.scores[TEST] if name in names):
        values = evaluation.scores[TEST][name]
        measures[f"prr_{name}"] = Measure(partial(_ratio_at, values, error), -math.inf, 100.0)
        measures[f"chrf_{name}"] = Measure(partial(_correlation_at, -values, evaluation.chrf), -1.0)
        for text, others in evaluation.scores.items():
            if text != TEST:
                area = partial(_area_at, text, values, others[name])
                measures[f"roc_{text}_{name}"] = Measure(area, text=text)
    return measures


def _measure_predictions(scores: TokenScores, evaluation: TokenEvaluation) -> dict[str, Measure]:
    """The measures of predictions on references."""
    tokens = scores.sums(np.ones(len(scores.sentence)))

    def mean_of(values: Float[ndarray, " token"], maximum: float) -> Measure:
        return Measure(partial(_mean_at, scores.sums(values), tokens), maximum=maximum)

    inner = bin_predictions(scores, evaluation)
    mass = bin_predictions(scores, evaluation, mass=True)
    ends = bin_predictions(scores, evaluation, ends=True)
    bin_sums = np.stack([scores.sums(column) for column in evaluation.bin_sums.T], 1)
    return {
        "nll": mean_of(-evaluation.log_prob, math.inf),
        "brier": mean_of(evaluation.brier, 2.0),
        "ece": Measure(lambda at: _bins_at(inner, at).error),
        "ece_mass": Measure(lambda at: _bins_at(mass, at).error),
        "excess": Measure(lambda at: _bins_at(inner, at).overconfidence, -1.0),
        "ece_end": Measure(lambda at: _bins_at(ends, at).error),
        "ece_weighted": Measure(partial(_weighted_at, bin_sums, tokens)),
    }


def bin_predictions(
    scores: TokenScores, evaluation: TokenEvaluation, *, ends: bool = False, mass: bool = False
) -> BinSums:
    """Bins the predictions on references by their confidence.

    Args:
        scores: The scores of the tokens.
        evaluation: Their evaluation at a temperature.
        ends: Take the positions whose likeliest token is EOS; otherwise all others.
        mass: Bins of equal mass; otherwise of equal width.
    """
    selected = scores.ends == ends
    confidence, correct = evaluation.confidence[selected], evaluation.correct[selected]
    edges = equal_mass_edges(confidence) if mass and len(confidence) else equal_width_edges()
    return sum_bins(confidence, correct, scores.sentence[selected], scores.sentences, edges)


def _measure_output(evaluation: EnsembleEvaluation) -> dict[str, Measure]:
    """The measures of the translations."""
    output = evaluation.output
    probability = np.exp(output.log_prob)
    sums = output.bins(probability)
    tokens = sums.count.sum(1)
    calibrated = output.bins(evaluation.platt_scaling(output.log_prob))
    return {
        "chrf": Measure(
            partial(_mean_at, evaluation.chrf, np.ones(len(evaluation.chrf))), maximum=100.0
        ),
        "right": Measure(partial(_mean_at, sums.correct.sum(1), tokens)),
        "sure": Measure(partial(_mean_at, sums.confidence.sum(1), tokens)),
        "own_ece": Measure(lambda at: _bins_at(sums, at).error),
        "own_ece_line": Measure(lambda at: _bins_at(calibrated, at).error),
    }


def _weights(indices: SentenceIndices, sentences: int) -> Float[ndarray, " sentence"]:
    """How often each sentence of the test part counts."""
    counts: Float[ndarray, " sentence"] = np.bincount(indices[TEST], minlength=sentences)
    return counts.astype(float)


def _mean_at(sums: ndarray, tokens: ndarray, indices: SentenceIndices) -> float:
    """The mean over tokens; NaN without tokens."""
    weights = _weights(indices, len(sums))
    number = weights @ tokens
    return float(weights @ sums / number) if number else float("nan")


def _bins_at(sums: BinSums, indices: SentenceIndices) -> Bins:
    return sums.bins(_weights(indices, len(sums.count)))


def _weighted_at(bin_sums: ndarray, tokens: ndarray, indices: SentenceIndices) -> float:
    weights = _weights(indices, len(tokens))
    return float(np.abs(weights @ bin_sums).sum() / (weights @ tokens))


def _ratio_at(scores: ndarray, error: ndarray, indices: SentenceIndices) -> float:
    selected = indices[TEST]
    return rejection_ratio(scores[selected], error[selected])


def _correlation_at(first: ndarray, second: ndarray, indices: SentenceIndices) -> float:
    selected = indices[TEST]
    return correlation(first[selected], second[selected])


def _area_at(text: str, inside: ndarray, outside: ndarray, indices: SentenceIndices) -> float:
    return roc_auc(inside[indices[TEST]], outside[indices[text]])


@dataclass(frozen=True)
class Figure:
    """A measure of a system, and its difference to the baseline.

    The baseline is the first system; for an uncertainty score, the log-probability of the first
    system.

    Attributes:
        score: On all sentences, the mean over the system's evaluations.
        low: Lower end of the 95 % interval, clipped to the range of the measure.
        high: Its upper end.
        difference: Difference to the baseline.
        difference_low: Lower end of its 95 % interval, with paired resamples.
        difference_high: Its upper end.
        p: Two-sided p-value of the difference; None for the baseline itself, and where one of the
            two is NaN in a resample.
        each: The value of every evaluation.
    """

    score: float
    low: float
    high: float
    difference: float
    difference_low: float
    difference_high: float
    p: float | None
    each: list[float]


def compare_systems(
    systems: Sequence[Sequence[EnsembleEvaluation]],
    sizes: Mapping[str, int],
    resamples: int = 1000,
    seed: int = SEED,
    paired: Collection[str] = (),
) -> list[dict[str, Figure]]:
    """Computes all measures of all systems with bootstrap intervals and paired tests.

    A system has several evaluations, as of runs with different seeds; its measures are their means.
    All systems share the same resamples.

    Args:
        systems: The evaluations of each system; the first one is the baseline.
        sizes: Number of sentences of each text, as in :attr:`Texts.sizes`.
        resamples: Number of resamples.
        seed: Seed of the resampling.
        paired: Texts that have the test part's own sentences in the same order, such as permuted
            sources: they share its resamples. Every other text is resampled independently.
    """
    resampled = {
        name: Resamples(number, resamples, seed + index)
        for index, (name, number) in enumerate(sizes.items())
    }
    resampled |= dict.fromkeys(paired, resampled[TEST])
    whole = {name: np.arange(number) for name, number in sizes.items()}
    of_systems = [
        [compute_measures(evaluation, varying_scores(evaluations)) for evaluation in evaluations]
        for evaluations in systems
    ]
    values = [
        {name: _resample(measures, name, whole, resampled) for name in measures[0]}
        for measures in of_systems
    ]
    return [
        {
            name: _compare_figure(
                measures[0][name],
                values[0][baseline_of(name)],
                values[index][name],
                index == 0 and name == baseline_of(name),
                [float(of_evaluation[name](whole)) for of_evaluation in measures],
            )
            for name in measures[0]
        }
        for index, measures in enumerate(of_systems)
    ]


def baseline_of(name: str) -> str:
    """The measure of the first system that a measure is compared with."""
    for score in (*UNCERTAINTIES, DISSIMILARITY):
        if name.startswith(("prr_", "chrf_", "roc_")) and name.endswith(f"_{score}"):
            return f"{name.removesuffix(score)}log_prob"
    return name


def _compare_figure(
    measure: Measure,
    baseline: Resampled,
    values: Resampled,
    is_baseline: bool,
    by_evaluation: list[float],
) -> Figure:
    """Estimates a measure, and its difference to the baseline."""
    estimate = estimate_systems([baseline, values], "", measure.minimum, measure.maximum)[1]
    difference = estimate_systems([(values[0] - baseline[0], values[1] - baseline[1])], "")[0]
    return Figure(
        score=estimate.score,
        low=estimate.low,
        high=estimate.high,
        difference=difference.score,
        difference_low=difference.low,
        difference_high=difference.high,
        p=None if is_baseline else estimate.p,
        each=by_evaluation,
    )


def _resample(
    evaluations: Sequence[Mapping[str, Measure]],
    name: str,
    whole: SentenceIndices,
    resampled: Mapping[str, Resamples],
) -> Resampled:
    """The mean of a measure over evaluations, on all sentences and on every resample.

    For a text of one sentence the resamples are NaN.
    """

    def mean_at(indices: SentenceIndices) -> float:
        return float(np.mean([measures[name](indices) for measures in evaluations]))

    if 1 in (len(whole[TEST]), len(whole[evaluations[0][name].text])):
        return mean_at(whole), np.full(len(resampled[TEST]), np.nan)
    rows = zip(*resampled.values(), strict=True)
    values = [mean_at(dict(zip(resampled, indices, strict=True))) for indices in rows]
    return mean_at(whole), np.array(values)
