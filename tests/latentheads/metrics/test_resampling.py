"""The bootstrap over sentences: intervals, paired differences, and what they say of chance."""

from __future__ import annotations

import random
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentheads.metrics.resampling import (
    RESAMPLES,
    SEED,
    Resamples,
    estimate_systems,
    resample_counts,
)
from tests.latentheads.metrics.systems import paired_bootstrap

RIGHT = [f"The well-known dog {i} saw, on day {i * i}, a state-of-the-art cat!" for i in range(60)]
CLOSE = [line.replace("cat", "hat") if i % 5 == 0 else line for i, line in enumerate(RIGHT)]
POOR = [*RIGHT[:1], *(" ".join(line.split()[::-1]) for line in RIGHT[1:])]
SCORES = st.lists(st.floats(-9, 9), min_size=2, max_size=20)


@given(SCORES, st.integers(0, 99))
def test_a_mean_is_resampled_as_the_mean_of_its_sentences(scores: list[float], seed: int) -> None:
    indices = Resamples(len(scores), 40, seed)
    counts = np.array([[score, 1.0] for score in scores])
    whole, resampled = resample_counts(counts, lambda sums: sums[0] / sums[1], indices)
    assert whole == pytest.approx(np.mean(scores))
    expected = [np.array(scores)[sentences].mean() for sentences in indices]
    np.testing.assert_allclose(resampled, expected, atol=1e-12)


@given(SCORES, st.integers(0, 99))
def test_a_system_never_differs_from_itself_and_a_constant_changes_no_p(
    scores: list[float], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    system = float(np.mean(scores)), rng.choice(scores, 50)
    other = system[0] + 1, rng.choice(scores, 50) + 1
    shifted = [(whole + 100, resampled + 100) for whole, resampled in (system, other)]
    first, same, second = estimate_systems([system, system, other], "")
    _, moved = estimate_systems(shifted, "")
    assert (first.p, same.p) == (None, 1.0)
    assert second.p is not None
    assert moved.p == pytest.approx(second.p, abs=2 / 51)  # rounding may break a tie
    assert first.low <= first.mean <= first.high


@given(st.integers(1, 30), st.integers(0, 2**40))
def test_a_seed_gives_the_same_resamples_of_all_sentences(number: int, seed: int) -> None:
    indices = Resamples(number, 40, seed)
    expected = np.random.default_rng(seed).choice(number, (40, number))
    for _ in range(2):
        assert np.array_equal([*indices], expected)


def test_a_resample_is_in_memory_at_a_time() -> None:
    counts = np.ones((10_007, 1))
    tracemalloc.start()
    try:
        resample_counts(counts, lambda sums: float(sums[0]), Resamples(10_007, 40, 0))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * 10_007 * 8  # all 40 would be five times as much


def test_the_bootstrap_tells_a_worse_system_from_the_baseline() -> None:
    base, poor = paired_bootstrap(RIGHT, [POOR], RIGHT, protocol="iwslt14", resamples=200)
    for name in ("bleu", "chrf", "paper_bleu"):
        assert getattr(base, name).p is None
        assert getattr(poor, name).p == pytest.approx(1 / 201)
        assert getattr(poor, name).high < getattr(base, name).score == pytest.approx(100)


def test_the_bootstrap_does_not_tell_a_system_from_itself_or_a_like_one() -> None:
    like = [line.replace("cat", "hat") if i % 5 == 1 else line for i, line in enumerate(RIGHT)]
    _, same, other = paired_bootstrap(CLOSE, [list(CLOSE), like], RIGHT, resamples=200)
    assert same.bleu.p == same.chrf.p == 1
    assert other.bleu.p is not None
    assert other.bleu.p > 0.2


def test_an_interval_stays_within_what_a_score_can_be() -> None:
    resampled = 99.0, np.array([90.0] * 3 + [100.0] * 57)
    (free,) = estimate_systems([resampled], "")
    assert free.low == pytest.approx(free.mean - free.half_width)
    assert free.high == pytest.approx(free.mean + free.half_width)
    assert free.high > 100 > free.mean > free.low > 90
    (bound,) = estimate_systems([resampled], "", 98, 100)
    assert (bound.low, bound.high) == (98, 100)
    assert (bound.mean, bound.half_width) == (free.mean, free.half_width)
    nearly = [*RIGHT[:-1], "the end"]
    (computed_estimate,) = paired_bootstrap(nearly, [], RIGHT, accuracy=True, resamples=50)
    assert computed_estimate.accuracy is not None
    for estimate in (computed_estimate.bleu, computed_estimate.chrf, computed_estimate.accuracy):
        assert estimate.low < estimate.score < estimate.high == 100
    (computed_estimate,) = paired_bootstrap(
        [RIGHT[0], *POOR[1:]], [], RIGHT, accuracy=True, resamples=50
    )
    assert computed_estimate.accuracy is not None
    assert (
        computed_estimate.accuracy.low
        == 0
        < computed_estimate.accuracy.score
        < computed_estimate.accuracy.high
    )


@pytest.mark.parametrize("end", [0.0, 100.0])
def test_resamples_that_are_all_at_an_end_of_the_scale_have_no_interval(end: float) -> None:
    (estimate,) = estimate_systems([(end, np.full(50, end + 1e-13))], "", 0.0, 100.0)
    assert estimate.score == end
    assert np.isnan([estimate.low, estimate.high]).all()


def test_equal_systems_are_told_apart_as_rarely_as_p_says() -> None:
    """Sixty pairs of systems that drop words at the same rate: three are expected below 0.05."""
    rng = random.Random(3)
    right = [" ".join(rng.choices("abcdefgh", k=6)) for _ in range(15)]

    def noisy() -> list[str]:
        return [" ".join(w for w in line.split() if rng.random() < 0.8) or "a" for line in right]

    actual = []
    for seed in range(60):
        _, other = paired_bootstrap(noisy(), [noisy()], right, True, resamples=40, seed=seed)
        actual.append(other.bleu.p)
    assert sum(p < 0.05 for p in actual) <= 8
    assert 0.3 < sum(actual) / len(actual) < 0.65
    assert max(actual) > 0.8


@pytest.mark.parametrize(("number", "share", "rejected"), [(8, 0.89, 0.11), (30, 0.94, 0.06)])
def test_over_few_sentences_an_interval_is_too_narrow_and_p_too_small(
    number: int, share: float, rejected: float
) -> None:
    resamples = np.stack(list(Resamples(number, RESAMPLES, SEED)))
    samples = np.random.default_rng(0).normal(size=(2000, number))
    baseline = 0.0, np.zeros(RESAMPLES)
    held, low_p = 0, 0
    for scores in samples:
        system = float(scores.mean()), scores[resamples].mean(1)
        _, estimate = estimate_systems([baseline, system], "")
        held += estimate.low <= 0 <= estimate.high
        low_p += estimate.p is not None and estimate.p < 0.05
    assert held / len(samples) == pytest.approx(share, abs=0.02)
    assert low_p / len(samples) == pytest.approx(rejected, abs=0.02)


@pytest.mark.parametrize(
    ("correlation", "share", "rejected"), [(0.0, 0.95, 0.05), (0.1, 0.84, 0.16), (0.3, 0.68, 0.32)]
)
def test_over_blocks_of_few_texts_an_interval_is_too_narrow_and_p_too_small(
    correlation: float, share: float, rejected: float
) -> None:
    texts, blocks, samples = 20, 10, 600
    number = texts * blocks
    counts = [np.bincount(resample, minlength=number) for resample in Resamples(number, 400, SEED)]
    rng = np.random.default_rng(0)
    of_text = rng.normal(size=(samples, texts)).repeat(blocks, 1) * correlation**0.5
    scores = of_text + rng.normal(size=(samples, number)) * (1 - correlation) ** 0.5
    baseline = 0.0, np.zeros(len(counts))
    estimates = [
        estimate_systems([baseline, system], "")[1]
        for system in zip(
            scores.mean(1).tolist(), scores @ np.array(counts).T / number, strict=True
        )
    ]
    held = sum(estimate.low <= 0 <= estimate.high for estimate in estimates)
    low_p = sum(estimate.p is not None and estimate.p < 0.05 for estimate in estimates)
    assert held / samples == pytest.approx(share, abs=0.04)
    assert low_p / samples == pytest.approx(rejected, abs=0.04)


def test_resamples_of_a_single_sentence_say_nothing() -> None:
    base, other = paired_bootstrap(["a b c d"], [["a b c e"]], ["a b c d"], True, accuracy=True)
    for estimate in (base.bleu, other.bleu, other.chrf, other.accuracy):
        assert estimate is not None
        assert np.isnan([estimate.mean, estimate.low, estimate.high]).all()
        assert estimate.p is None
    assert base.bleu.score == pytest.approx(100)
    assert other.bleu.score < 100


def test_a_difference_that_is_unknown_in_a_resample_has_no_p() -> None:
    whole = np.arange(50.0)
    holed = np.where(whole == 7, np.nan, whole)
    for first, second, p in (
        ((2.0, whole), (2.0, whole), 1.0),
        ((2.0, whole), (1.0, holed), None),
        ((np.nan, whole), (1.0, whole), None),
    ):
        baseline, other = estimate_systems([first, second], "")
        assert (baseline.p, other.p) == (None, p)
