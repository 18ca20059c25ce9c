"""Cleaning: which training pairs stay, and how many went for which reason."""

from __future__ import annotations

from typing import Any

import pytest

from latentheads.corpora.cleaning import Cleaning, Counts, clean

PAIRS = [("a b", "c d e"), ("a b", "c d e f"), (" \t", "c"), ("a", ""), ("a " * 176, "c " * 176)]


def test_pairs_stay_unchanged_and_in_order() -> None:
    kept, counts = clean(iter([(" a  b", "c "), ("d", "e")]))
    assert kept == [(" a  b", "c "), ("d", "e")]
    assert counts == Counts(kept=2)


def test_the_usual_limits_leave_the_ratio_alone() -> None:
    kept, counts = clean(PAIRS)
    assert kept == PAIRS[:2]
    assert counts == Counts(kept=2, empty=2, too_long=1, first_long=5)


def test_the_published_limits_are_inclusive() -> None:
    published = Cleaning(max_length=175, max_ratio=1.5)  # those of the preset iwslt14
    kept, counts = clean([*PAIRS, ("a " * 175, "c " * 175)], published)
    assert kept == [PAIRS[0], ("a " * 175, "c " * 175)]
    assert counts == Counts(kept=2, empty=2, too_long=1, ratio=1, first_long=5)


def test_without_limits_only_empty_pairs_go() -> None:
    assert clean(PAIRS, Cleaning(0, 0))[1] == Counts(kept=3, empty=2)


def test_the_ratio_holds_for_both_directions() -> None:
    ratio = Cleaning(max_ratio=2)
    assert clean([("a", "b b"), ("a a", "b")], ratio)[1].kept == 2
    assert clean([("a", "b b b"), ("a a a", "b")], ratio)[1].ratio == 2


def test_counts_are_one_readable_line() -> None:
    assert str(Counts(kept=28_331, empty=1, too_long=2, ratio=666)) == (
        "28,331 of 29,000 training pairs kept; left out: 1 empty on a side, 2 too long, "
        "666 too unlike in length"
    )


def test_text_without_spaces_is_one_long_word() -> None:
    limits = Cleaning(max_word=5)
    pairs = [("a b c d", "e"), ("a bcdefg", "h"), ("i", "漢字" * 3), ("hijkl", "m")]
    kept, counts = clean(pairs, limits)
    assert kept == [pairs[0], pairs[3]]
    assert counts == Counts(kept=2, too_long=2, first_long=2)
    assert "2 too long (the first is line 2)," in str(counts)


def test_the_words_of_a_line_that_is_shorter_than_any_long_word_are_not_measured() -> None:
    class Line(str):
        def split(self, *_: Any) -> list[Any]:
            return [object()]  # which has no length

    limits = Cleaning(max_word=5)
    assert limits.rejection_reason(Line("a b c"), Line("d")) is None
    with pytest.raises(TypeError, match="len"):
        limits.rejection_reason(Line("a b c d"), Line("e"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": -1}, r"max_length must be at least 0, got -1"),
        ({"max_word": -1}, r"max_word must be at least 0, got -1"),
        ({"max_ratio": 0.5}, "max_ratio must be at least 1, or 0 for none; got 0.5"),
        ({"max_ratio": float("nan")}, "max_ratio must be at least 1, or 0 for none; got nan"),
    ],
)
def test_a_limit_that_leaves_nothing_is_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        Cleaning(**options)
