"""Links against gold links, counted by hand."""

from __future__ import annotations

import math
import re

import pytest

from latentheads.metrics.alignment import (
    LinkCounts,
    count_links,
    read_gold,
    read_pharaoh,
    score_interval,
    write_pharaoh,
)
from tests.typechecking import unchecked


def test_counts_of_a_corpus_are_those_made_by_hand() -> None:
    actual = [{(0, 0), (1, 1), (2, 1)}, {(0, 1)}, set[tuple[int, int]]()]
    sure = [{(0, 0), (1, 2)}, {(0, 1), (1, 0)}, {(0, 0)}]
    possible = [{(2, 1)}, set[tuple[int, int]](), set[tuple[int, int]]()]
    counts = count_links(actual, sure, possible)
    assert counts == LinkCounts(found=4, sure=5, found_sure=2, found_possible=3)
    assert counts == count_links([*map(list, actual)], sure, possible)  # as `lh.align` returns them
    assert counts.precision == 3 / 4
    assert counts.recall == 2 / 5
    assert counts.aer == pytest.approx(1 - (2 + 3) / (4 + 5))
    assert counts.f1 == pytest.approx(2 * 0.75 * 0.4 / 1.15)


def test_without_possible_links_the_error_is_one_less_f1() -> None:
    counts = count_links([{(0, 0), (1, 1), (2, 0)}], [{(0, 0), (1, 2)}])
    assert (counts.precision, counts.recall) == (1 / 3, 1 / 2)
    assert counts.aer == pytest.approx(1 - 2 * 1 / 5)
    assert counts.aer == pytest.approx(1 - counts.f1)


def test_nothing_found_and_nothing_to_find() -> None:
    nothing = set[tuple[int, int]]()
    missed, idle = count_links([nothing], [{(0, 0)}]), count_links([nothing], [nothing])
    assert (missed.aer, missed.recall, missed.f1) == (1, 0, 0)
    assert math.isnan(missed.precision)
    assert all(map(math.isnan, (idle.aer, idle.precision, idle.recall, idle.f1)))
    unsure = count_links([{(1, 0)}], [set()], [{(1, 0)}])
    assert unsure.precision == 1
    assert math.isnan(unsure.f1)
    assert (wrong := count_links([{(1, 0)}], [{(0, 0)}])).f1 == 0
    assert wrong.aer == 1


def test_corpora_must_be_of_one_length() -> None:
    with pytest.raises(ValueError, match="sentences of sure must be as many"):
        count_links([{(0, 0)}], [{(0, 0)}, {(0, 0)}])


def test_links_are_written_and_read() -> None:
    links = {(10, 2), (2, 10), (0, 0)}
    assert write_pharaoh(links) == "0-0 2-10 10-2"
    assert read_pharaoh(write_pharaoh(links)) == links
    assert write_pharaoh(()) == ""
    assert read_pharaoh("\n") == frozenset()


def test_links_with_their_probabilities_are_read() -> None:
    assert read_pharaoh("0-0:0.93 12-3:1.00 4-5") == {(0, 0), (12, 3), (4, 5)}
    with pytest.raises(ValueError, match=re.escape("got '0-0:'")):
        read_pharaoh("0-0:")


def test_gold_links_are_sure_or_possible() -> None:
    assert read_gold("0-0 1?2 3p4 5-6\n") == ({(0, 0), (5, 6)}, {(1, 2), (3, 4)})
    assert read_gold("") == (frozenset(), frozenset())
    with pytest.raises(ValueError, match="got '1q2'"):
        read_gold("0-0 1q2")


def test_the_interval_of_the_error_rate_is_over_sentences() -> None:
    right, wrong = LinkCounts(2, 2, 2, 2), LinkCounts(2, 2, 0, 0)
    coins = [right] * 50 + [wrong] * 50
    expected = pytest.approx((0.5 - 1.96 * 0.05, 0.5 + 1.96 * 0.05), abs=0.01)
    assert score_interval(coins) == expected
    assert score_interval(coins, "precision") == expected
    assert score_interval([*coins, LinkCounts(98, 0, 0, 0)], "precision") != expected
    with pytest.raises(ValueError, match="score must be one of aer, precision, recall, f1"):
        unchecked(score_interval)(coins, "error")
    assert all(map(math.isnan, score_interval([right])))
    assert all(map(math.isnan, score_interval([LinkCounts(2, 2, 1, 1)] * 50)))  # no point


@pytest.mark.parametrize("word", ["0", "0-", "0-1-2", "a-1", "0:1", "-1-0"])
def test_what_is_no_link_is_named(word: str) -> None:
    with pytest.raises(ValueError, match=f"0-1; got '{word}'"):
        read_pharaoh(f"0-0 {word}")
