"""Errors of word times: shares near the truth, coverage, and intervals of enough sounds."""

from __future__ import annotations

import numpy as np
import pytest

from latentheads.contrib.speech import TimeErrors, word_time_errors
from latentheads.contrib.speech.time_errors import MIN_SOUNDS, differences
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


def test_shares_have_an_interval_if_there_are_enough_sounds() -> None:
    errors = TimeErrors([np.array([0.0, 0.3])] * (MIN_SOUNDS - 1))
    assert errors.summary()["within"]["50 ms"] == [50.0]
    errors.extend(TimeErrors([np.zeros(2)]))
    share, low, high = errors.summary()["within"]["50 ms"]
    assert low < share == 55.0 < high


def test_an_interval_is_of_sounds_that_are_known_and_no_point() -> None:
    errors = TimeErrors([np.array([0.0, 0.3])] * (MIN_SOUNDS - 1) + [np.zeros(0)] * 9)
    assert errors.summary()["within"]["50 ms"] == [50.0]
    errors.extend(TimeErrors([np.zeros(2)]))
    assert np.isfinite(errors.summary()["within"]["50 ms"]).tolist() == [True] * 3
    assert TimeErrors([np.zeros(2)] * MIN_SOUNDS).summary()["within"]["50 ms"] == [100.0]


def test_errors_are_of_words_whose_times_are_known() -> None:
    errors = word_time_errors({"x": WORDS, "y": WORDS}, {"x": [0.15, 0.5], "y": [NAN, 0.3]})
    assert [seconds.round(3).tolist() for seconds in errors.seconds] == [[-0.05, -0.2], [0.0]]
    assert errors.summary(level=0.8)["coverage_of_80"] == [66.7]
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
