"""Errors of word times: shares near the truth, coverage, and intervals that hold it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import stdtrit

from latentheads.contrib.speech import TimeErrors, word_time_errors
from latentheads.contrib.speech.time_errors import differences
from latentheads.contrib.speech.word_times import WordTime
from tests.typechecking import unchecked

NAN = float("nan")
WORDS = [WordTime("a", 0.1, 0.0, 0.2, 0.3), WordTime("b", 0.3, 0.25, 0.4, 0.5, 0.45, 0.6)]


def test_shares_are_of_known_boundaries_and_bias_is_removed() -> None:
    errors = TimeErrors()
    errors.add([1.0, float("nan"), 2.0], [1.03, 5.0, 2.11], ([0.9, 4, 2.05], [1.1, 6, 2.2]))
    summary = errors.summary()
    assert (summary["sounds"], summary["boundaries"]) == (1, 2)
    assert [summary["within"][f"{ms} ms"][0] for ms in (20, 50, 100, 200)] == [0, 50, 50, 100]
    assert summary["coverage_of_90"][0] == 50
    assert errors.bias == pytest.approx(0.07)
    assert errors.without_bias(0.07).summary()["within"]["50 ms"][0] == 100


def test_errors_less_those_of_others_are_paired() -> None:
    half, whole = (TimeErrors([np.array([0.0, error])] * 3) for error in (0.3, 0.0))
    assert differences(half, whole)["50 ms"][0] == -50.0


def test_intervals_are_wilsons_with_the_words_that_vary_as_much() -> None:
    right, wrong = np.zeros(3), np.full(3, 0.3)
    alone = TimeErrors([right]).summary()["within"]["50 ms"]
    assert alone == [100.0]  # of one sound there is none
    none_wrong = TimeErrors([right] * 7).summary()["within"]["50 ms"]
    quantile = stdtrit(6, 0.975) ** 2
    assert none_wrong == [100.0, pytest.approx(100 / (1 + quantile / 21), abs=0.1), 100.0]
    # sounds that are right or wrong as a whole are as many words as sounds
    whole = TimeErrors([right, wrong] * 3 + [right]).summary()["within"]["50 ms"]
    seven = TimeErrors([error[:1] for error in ([right, wrong] * 3 + [right])])
    assert whole == seven.summary()["within"]["50 ms"]
    assert whole[0] == 57.1
    share, size = 4 / 7, 7 * 6 / 7  # the variance has one less than the number of sounds
    centre = (share + quantile / size / 2) / (1 + quantile / size)
    assert (whole[1] + whole[2]) / 200 == pytest.approx(centre, abs=1e-3)


def test_intervals_of_shares_and_differences_hold_the_truth() -> None:
    random, held, cases = np.random.default_rng(0), np.zeros(2), 400
    for _ in range(cases):
        sounds = []
        for _ in range(2):
            shares = random.beta(0.9 * 8, 0.1 * 8, 11)
            sounds.append([0.3 * (random.random(5) > share) for share in shares])
        errors, others = map(TimeErrors, sounds)
        _, low, high = errors.summary()["within"]["50 ms"]
        _, least, most = differences(errors, others)["50 ms"]
        held += (low <= 90 <= high, least <= 0 <= most)
    assert (held / cases > 0.92).all(), held


def test_an_interval_is_of_sounds_that_are_known_and_no_point() -> None:
    some = TimeErrors([np.array([0.0, 0.3]), np.zeros(2)] * 3)
    more = TimeErrors([*some.seconds, *[np.zeros(0)] * 9])
    assert more.summary()["within"] == some.summary()["within"]
    assert differences(some, some)["50 ms"] == [0.0]


def test_errors_are_of_words_whose_times_are_known() -> None:
    errors = word_time_errors({"x": WORDS, "y": WORDS}, {"x": [0.15, 0.5], "y": [NAN, 0.3]})
    assert [seconds.round(3).tolist() for seconds in errors.seconds] == [[-0.05, -0.2], [0.0]]
    assert errors.summary(level=0.8)["coverage_of_80"][0] == 66.7
    of_json = unchecked(word_time_errors)({"x": WORDS, "y": WORDS}, {"x": [None, 0.5]})
    assert of_json.seconds[0].round(3).tolist() == [-0.2]
    ends = word_time_errors({"x": WORDS[1:]}, {"x": [0.4]}, boundary="end")
    assert ends.summary()["coverage_of_90"] == [0.0]
    guessed = word_time_errors({"x": WORDS[:1]}, {"x": [0.4]}, boundary="end")
    assert guessed.bias == pytest.approx(-0.1)
    assert "coverage_of_90" not in guessed.summary()  # an end that was not learned has no interval


@pytest.mark.parametrize(
    ("truth", "message"),
    [
        ({"z": [1.0]}, r"^truth must be one of x; got 'z'$"),
        ({"x": [1.0]}, r"^x: true times must be as many as words, 2, got 1$"),
        ({"x": [NAN, NAN]}, r"^true times must be at least one, got none$"),
        ({}, r"^true times must be at least one, got none$"),
    ],
)
def test_truth_is_of_the_words_of_sounds(truth: dict[str, list[float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        word_time_errors({"x": WORDS}, truth)
    with pytest.raises(ValueError, match=r"^boundary must be one of start, end; got 'middle'$"):
        word_time_errors({"x": WORDS}, truth, "middle")  # type: ignore[arg-type]
