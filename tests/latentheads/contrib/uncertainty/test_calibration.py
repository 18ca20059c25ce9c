"""Calibration against cases counted by hand."""

import numpy as np
import pytest

from latentheads.contrib.uncertainty.calibration import (
    equal_mass_edges,
    equal_width_edges,
    sum_bins,
)
from latentheads.metrics.resampling import SEED, Resamples, estimate_systems

CONFIDENCE = np.array([0.9, 0.8, 0.6, 0.2])
RIGHT = np.array([True, False, True, False])
SENTENCE = np.array([0, 0, 1, 1])


def test_bins_of_equal_width_by_hand() -> None:
    sums = sum_bins(CONFIDENCE, RIGHT, SENTENCE, 2, equal_width_edges(2))
    bins = sums.bins()
    assert bins.count.tolist() == [1, 3]
    assert bins.confidence == pytest.approx([0.2, 2.3 / 3])
    assert bins.accuracy == pytest.approx([0, 2 / 3])
    assert bins.error == pytest.approx((0.2 + 3 * (2.3 / 3 - 2 / 3)) / 4)
    assert bins.overconfidence == pytest.approx(2.5 / 4 - 2 / 4)


def test_errors_of_two_bins_do_not_make_up_for_each_other_but_in_the_signed_one() -> None:
    confidence, correct = np.array([0.25, 0.75]), np.array([True, False])
    bins = sum_bins(confidence, correct, np.array([0, 0]), 1, equal_width_edges(2)).bins()
    assert bins.error == pytest.approx(0.75)
    assert bins.overconfidence == pytest.approx(0)


def test_bins_of_equal_mass_hold_equal_numbers() -> None:
    edges = equal_mass_edges(CONFIDENCE, 2)
    bins = sum_bins(CONFIDENCE, RIGHT, SENTENCE, 2, edges).bins()
    assert bins.count.tolist() == [2, 2]
    assert bins.error == pytest.approx((abs(0.8 - 1) + abs(1.7 - 1)) / 4)


def test_a_sentence_that_is_drawn_twice_counts_twice() -> None:
    sums = sum_bins(CONFIDENCE, RIGHT, SENTENCE, 2, equal_width_edges(2))
    twice = np.concatenate([CONFIDENCE[:2], CONFIDENCE[:2]])
    correct = np.concatenate([RIGHT[:2], RIGHT[:2]])
    expected = sum_bins(twice, correct, np.zeros(4, int), 1, equal_width_edges(2)).bins()
    bins = sums.bins(np.array([2.0, 0.0]))
    assert bins.error == pytest.approx(expected.error)
    assert bins.overconfidence == pytest.approx(expected.overconfidence)


def test_a_probability_on_an_edge_falls_into_the_bin_below_it() -> None:
    sums = sum_bins(np.array([0.5]), np.array([True]), np.array([0]), 1, equal_width_edges(2))
    assert sums.count.tolist() == [[1, 0]]


def test_an_empty_bin_says_nothing_and_costs_nothing() -> None:
    bins = sum_bins(
        np.array([1.0]), np.array([True]), np.array([0]), 1, equal_width_edges(3)
    ).bins()
    assert np.isnan(bins.accuracy[:2]).all()
    assert bins.error == 0


def test_the_error_of_few_calibrated_tokens_is_too_large_and_so_is_its_interval() -> None:
    """Figures of docs/uncertainty.md, there of more samples."""
    sentences, length, samples = 50, 12, 40
    resamples = Resamples(sentences, 100, SEED)
    weights = [np.bincount(r, minlength=sentences).astype(float) for r in resamples]
    rng, sentence = np.random.default_rng(0), np.arange(sentences).repeat(length)
    errors, low, held = [], [], 0
    for _ in range(samples):
        log_odds = rng.normal(1, 1.5, (sentences, length)) + rng.normal(size=(sentences, 1))
        probability = 1 / (1 + np.exp(-log_odds.ravel()))
        correct = rng.random(len(probability)) < probability
        sums = sum_bins(probability, correct, sentence, sentences, equal_width_edges())
        bins = [sums.bins(), *map(sums.bins, weights)]
        error, excess = (
            estimate_systems([(value[0], np.array(value[1:]))], "")[0]
            for value in ([b.error for b in bins], [b.overconfidence for b in bins])
        )
        errors.append(error.score)
        low.append(error.low)
        held += excess.low <= 0 <= excess.high
    assert np.mean(errors) == pytest.approx(0.047, abs=0.005)
    assert min(low) > 0
    assert held >= 0.85 * samples
