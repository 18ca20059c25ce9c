"""Every figure of a trial, with intervals and paired tests by resampling the sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from latentheads.metrics.resampling import SEED, Resampled, estimate_systems, resample_indices
from latentheads.uncertainty.calibration import (
    Bins,
    BinSums,
    edges_of_mass,
    edges_of_width,
    sum_bins,
)
from latentheads.uncertainty.evaluation import TEST, UNLIKE, EnsembleEvaluation
from latentheads.uncertainty.figures import UNCERTAINTIES, TokenEvaluation, TokenFigures
from latentheads.uncertainty.ranking import correlation, rejection_ratio, roc_area

__all__ = ["Figure", "baseline_of", "bins_of_law", "compare_systems", "compute_measures"]

Places = Mapping[str, Int[ndarray, " sentence"]]
"""The sentences of each text that a figure is of; in a resample some stand there twice."""


@dataclass(frozen=True)
class Measure:
    """A figure of the sentences that it is given.

    Attributes:
        at: Computes it.
        least: The figure is never below it.
        most: Nor above it.
    """

    at: Callable[[Places], float]
    least: float = 0.0
    most: float = 1.0

    def __call__(self, places: Places) -> float:
        """The figure of some sentences."""
        return self.at(places)


def varying_scores(trials: Sequence[EnsembleEvaluation]) -> set[str]:
    """The scores of uncertainty that rank sentences, in one of a system's trials at least.

    A score of how members differ is 0 everywhere where there is one member: it ranks nothing.
    """
    return {
        name
        for trial in trials
        for name, values in trial.scores[TEST].items()
        if name == "log_prob" or np.ptp(values)
    }


def compute_measures(
    trial: EnsembleEvaluation, scores: Collection[str] | None = None
) -> dict[str, Measure]:
    """Every figure of a trial, by its name, as a function of the sentences.

    Of the references: ``nll``, ``brier``; ``ece`` by bins of equal width, ``ece_mass`` of equal
    mass, ``excess`` (its sign), all of places whose likeliest token is no end; ``ece_end`` where it
    is one; ``ece_weighted``, all probabilities at all places; each with ``_scaled`` behind it at
    the fitted temperature. Of what was written: ``chrf``, ``right`` and ``sure`` (share of tokens
    that are right, and their mean probability), ``own_ece`` and ``own_ece_line``. For each score
    ``prr_SCORE``, ``chrf_SCORE`` (correlation of less the score with chrF), and for each other text
    ``roc_TEXT_SCORE``.

    Args:
        trial: The trial.
        scores: The scores of uncertainty; None for those that vary.
    """
    references = trial.references
    found: dict[str, Measure] = {}
    for ending, judged in zip(("", "_scaled"), _both(trial), strict=True):
        of_law = _measure_law(references, judged)
        found |= {f"{name}{ending}": measure for name, measure in of_law.items()}
    found |= _measure_output(trial)
    error = 1 - trial.chrf / 100
    wanted = varying_scores([trial]) if scores is None else scores
    for name in (name for name in trial.scores[TEST] if name in wanted):
        values = trial.scores[TEST][name]
        found[f"prr_{name}"] = Measure(partial(_ratio_at, values, error), -math.inf, 100.0)
        found[f"chrf_{name}"] = Measure(partial(_correlation_at, -values, trial.chrf), -1.0)
        for text, others in trial.scores.items():
            if text != TEST:
                area = partial(_area_at, text, values, others[name])
                found[f"roc_{text}_{name}"] = Measure(area)
    return found


def _both(trial: EnsembleEvaluation) -> tuple[TokenEvaluation, TokenEvaluation]:
    """The laws at temperature 1, and at the fitted one."""
    judged = trial.references.judged
    return judged[1.0], judged[trial.temperature]


def _measure_law(figures: TokenFigures, judged: TokenEvaluation) -> dict[str, Measure]:
    """The figures of laws on references."""
    tokens = figures.sums(np.ones(len(figures.sentence)))

    def mean_of(values: Float[ndarray, " token"], most: float) -> Measure:
        return Measure(partial(_mean_at, figures.sums(values), tokens), most=most)

    inner = bins_of_law(figures, judged)
    mass = bins_of_law(figures, judged, mass=True)
    ends = bins_of_law(figures, judged, ends=True)
    masses = np.stack([figures.sums(column) for column in judged.masses.T], 1)
    return {
        "nll": mean_of(-judged.log_prob, math.inf),
        "brier": mean_of(judged.brier, 2.0),
        "ece": Measure(partial(_error_at, inner)),
        "ece_mass": Measure(partial(_error_at, mass)),
        "excess": Measure(partial(_excess_at, inner), -1.0),
        "ece_end": Measure(partial(_error_at, ends)),
        "ece_weighted": Measure(partial(_weighted_at, masses, tokens)),
    }


def bins_of_law(
    figures: TokenFigures, judged: TokenEvaluation, ends: bool = False, mass: bool = False
) -> BinSums:
    """Puts the likeliest tokens of references into bins by their probability.

    Args:
        figures: Of the tokens.
        judged: Their laws.
        ends: Take the places whose likeliest token is the end of a sentence; else all others.
        mass: Bins of equal mass; else of equal width.
    """
    some = figures.ends == ends
    confidence, right = judged.confidence[some], judged.right[some]
    edges = edges_of_mass(confidence) if mass and len(confidence) else edges_of_width()
    return sum_bins(confidence, right, figures.sentence[some], figures.sentences, edges)


def _measure_output(trial: EnsembleEvaluation) -> dict[str, Measure]:
    """The figures of the tokens that were written."""
    output = trial.output
    probability = np.exp(output.log_prob)
    sums = output.bins(probability)
    tokens = sums.count.sum(1)
    line = output.bins(trial.line(output.log_prob))
    return {
        "chrf": Measure(partial(_mean_at, trial.chrf, np.ones(len(trial.chrf))), most=100.0),
        "right": Measure(partial(_mean_at, sums.right.sum(1), tokens)),
        "sure": Measure(partial(_mean_at, sums.confidence.sum(1), tokens)),
        "own_ece": Measure(partial(_error_at, sums)),
        "own_ece_line": Measure(partial(_error_at, line)),
    }


def _weights(places: Places, sentences: int) -> Float[ndarray, " sentence"]:
    """How often each sentence of the test part counts."""
    counts: Float[ndarray, " sentence"] = np.bincount(places[TEST], minlength=sentences).astype(
        float
    )
    return counts


def _mean_at(sums: ndarray, tokens: ndarray, places: Places) -> float:
    """A mean over tokens; NaN where nothing was written."""
    weights = _weights(places, len(sums))
    number = weights @ tokens
    return float(weights @ sums / number) if number else float("nan")


def _bins_at(sums: BinSums, places: Places) -> Bins:
    return sums.bins(_weights(places, len(sums.count)))


def _error_at(sums: BinSums, places: Places) -> float:
    return _bins_at(sums, places).error


def _excess_at(sums: BinSums, places: Places) -> float:
    return _bins_at(sums, places).excess


def _weighted_at(masses: ndarray, tokens: ndarray, places: Places) -> float:
    weights = _weights(places, len(tokens))
    return float(np.abs(weights @ masses).sum() / (weights @ tokens))


def _ratio_at(scores: ndarray, error: ndarray, places: Places) -> float:
    some = places[TEST]
    return rejection_ratio(scores[some], error[some])


def _correlation_at(one: ndarray, other: ndarray, places: Places) -> float:
    some = places[TEST]
    return correlation(one[some], other[some])


def _area_at(text: str, inside: ndarray, outside: ndarray, places: Places) -> float:
    return roc_area(inside[places[TEST]], outside[places[text]])


@dataclass(frozen=True)
class Figure:
    """A figure of a system, and how far it is from that which it is held against.

    Attributes:
        score: Of all sentences, the mean over the system's trials.
        low: Lower end of the 95 % interval, within what the figure can be.
        high: Its upper end.
        difference: What it is above the baseline: the first system's own figure, of a score of
            uncertainty that of the first system's log-probability.
        difference_low: Lower end of the 95 % interval, the same resamples for both.
        difference_high: Its upper end.
        p: Of no difference, both sides; None of the baseline itself, and where one of the two is
            unknown in a resample.
        each: Of every trial.
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
    """Every figure of every system with what resampling the sentences says of it.

    A system is several trials, as of runs with different seeds; its figure is their mean. All
    systems are resampled alike.

    Args:
        systems: The trials of each; the first is the one that others are tested against.
        sizes: Sentences of each text, as :attr:`Texts.sizes` has them.
        resamples: How often the sentences are resampled.
        seed: Of the resamples.
        paired: Texts of the test part's own sentences, in its order, such as its sources permuted:
            a sentence is resampled in both. Every other text is resampled by itself.

    Returns:
        The figures of each system, by their names.
    """
    drawn = {
        name: resample_indices(number, resamples, seed + place)
        for place, (name, number) in enumerate(sizes.items())
    }
    drawn |= dict.fromkeys(paired, drawn[TEST])
    whole = {name: np.arange(number) for name, number in sizes.items()}
    every = [
        [compute_measures(trial, varying_scores(trials)) for trial in trials] for trials in systems
    ]
    known = [
        {name: _resample(measured, name, whole, drawn) for name in measured[0]}
        for measured in every
    ]
    return [
        {
            name: _compare_figure(
                measured[0][name],
                known[0][baseline_of(name)],
                known[place][name],
                place == 0 and name == baseline_of(name),
                [float(each[name](whole)) for each in measured],
            )
            for name in measured[0]
        }
        for place, measured in enumerate(every)
    ]


def baseline_of(name: str) -> str:
    """The figure of the first system that one is held against."""
    for score in (*UNCERTAINTIES, UNLIKE):
        if name.startswith(("prr_", "chrf_", "roc_")) and name.endswith(f"_{score}"):
            return f"{name.removesuffix(score)}log_prob"
    return name


def _compare_figure(
    measure: Measure, baseline: Resampled, own: Resampled, is_baseline: bool, each: list[float]
) -> Figure:
    """An estimate of a figure, and of its difference to another."""
    estimate = estimate_systems([baseline, own], "", measure.least, measure.most)[1]
    apart = own[0] - baseline[0], own[1] - baseline[1]
    difference = estimate_systems([apart], "")[0]
    return Figure(
        score=estimate.score,
        low=estimate.low,
        high=estimate.high,
        difference=difference.score,
        difference_low=difference.low,
        difference_high=difference.high,
        p=None if is_baseline else estimate.p,
        each=each,
    )


def _resample(
    measured: Sequence[Mapping[str, Measure]],
    name: str,
    whole: Places,
    drawn: Mapping[str, Int[ndarray, "resample sentence"]],
) -> Resampled:
    """The mean over trials of one figure, of all sentences and of every resample.

    The resamples of a test part of one sentence are NaN: they say nothing.
    """
    rows = range(len(next(iter(drawn.values()))))

    def mean_at(places: Places) -> float:
        return float(np.mean([each[name](places) for each in measured]))

    if len(whole[TEST]) == 1:
        return mean_at(whole), np.full(len(rows), np.nan)
    resampled = [mean_at({text: each[row] for text, each in drawn.items()}) for row in rows]
    return mean_at(whole), np.array(resampled)
