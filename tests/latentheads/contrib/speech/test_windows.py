"""Long sounds are cut where they are quiet, and their words divided."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from latentheads.contrib.speech.windows import divide_words, split_at_pauses
from tests.typechecking import unchecked

RATE = 500


def make_sound(seconds: int, quiet: Iterable[tuple[float, float]]) -> np.ndarray:
    """Noise with pauses."""
    samples = np.random.default_rng(0).standard_normal(seconds * RATE).astype(np.float32)
    for first, last in quiet:
        samples[int(first * RATE) : int(last * RATE)] *= 1e-3
    return samples


def test_a_sound_is_cut_in_the_pauses_of_the_second_halves() -> None:
    samples = make_sound(53, ((second, second + 1) for second in (3, 17, 30, 45)))
    windows = split_at_pauses(samples, RATE, 20)
    assert [first / RATE for first, _ in windows] == pytest.approx([0, 17.5, 30.5, 45.5], abs=0.4)
    assert [last for _, last in windows] == [*(first for first, _ in windows[1:]), len(samples)]
    assert unchecked(split_at_pauses)(torch.from_numpy(samples), RATE, 20) == windows


@pytest.mark.parametrize("offset", [0, 1])
def test_long_pauses_are_in_no_window(offset: int) -> None:
    samples = make_sound(53, [(0, 4), (9, 10), (20, 23), (50, 53)]) + np.float32(offset)
    (a, b), (c, d) = split_at_pauses(samples, RATE, 30)
    assert np.array([a, b, c, d]) / RATE == pytest.approx([4, 20, 23, 50], abs=0.5)
    assert a < 4 * RATE < 20 * RATE < b <= c < 23 * RATE < 50 * RATE < d


@pytest.mark.parametrize(("seconds", "number"), [(2.2, 1), (2.4, 2)])
def test_a_pause_of_2_3_seconds_is_left_out(seconds: float, number: int) -> None:
    assert len(split_at_pauses(make_sound(9, [(3, 3 + seconds)]), RATE, 30)) == number


def test_no_window_is_the_pause_at_the_end_of_another() -> None:
    samples = make_sound(30, [(19.9, 30)])
    (first, cut), (second, last) = split_at_pauses(samples, RATE, 20)
    assert (first, cut) == (0, second)
    assert second < 19.6 * RATE < 20 * RATE < last


@given(st.integers(0, 40 * RATE), st.integers(3, 11), st.booleans())
def test_windows_are_in_order_and_none_is_too_long(
    length: int, longest: int, is_silent: bool
) -> None:
    random = np.random.default_rng(length)
    samples = np.zeros(length) if is_silent else random.standard_normal(length)
    windows = split_at_pauses(samples.astype(np.float32), RATE, longest)
    assert windows[0][0] == 0
    assert length - 10 < windows[-1][1] <= length or length == windows[-1][1] == 0
    assert all(last == first for (_, last), (first, _) in pairwise(windows))
    assert all(last - first <= longest * RATE for first, last in windows)
    assert all(last - first >= longest * RATE / 2 - 10 for first, last in windows[:-1])


@pytest.mark.parametrize(
    ("transcripts", "words", "expected"),
    [
        ("A man,|goes hom|now", "a man goes home right now", "a man|goes home right|now"),
        ("a|b", "x a y b z", "x a y|b z"),
        ("a|wrong words here|b", "a these are right b", "a|these are right|b"),
        ("a||b", "a b", "a||b"),
        ("|", "a b", "a|b"),
        ("a b|c d", "a b x y c d", "a b x|y c d"),
        (("a b|? ?|c", "a b x y c", "a b|x y|c")),
        ("a b|c", "", "|"),
    ],
)
def test_words_are_divided_by_the_transcripts(transcripts: str, words: str, expected: str) -> None:
    divided = divide_words([part.split() for part in transcripts.split("|")], words.split())
    assert divided == [part.split() for part in expected.split("|")]


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=5), min_size=1), st.data())
def test_all_words_are_kept_in_order(transcripts: list[list[str]], data: st.DataObject) -> None:
    words = [word for part in transcripts for word in part]
    assert divide_words(transcripts, [word.upper() for word in words]) == [
        [word.upper() for word in part] for part in transcripts
    ]
    some = data.draw(st.lists(st.sampled_from("abx")))
    divided = divide_words(transcripts, some)
    assert len(divided) == len(transcripts)
    assert [word for part in divided for word in part] == some
