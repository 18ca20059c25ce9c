"""Sentences in one flat array."""

import numpy as np
import pytest

from latentheads.batch import BOS, PAD
from latentheads.corpora import Rows

SENTENCES = [[5, 2], [], [7, 8, 2], [2]]


def test_rows_give_back_their_sentences() -> None:
    rows = Rows.of(SENTENCES)
    assert len(rows) == 4
    assert [row.tolist() for row in rows] == SENTENCES
    assert rows[-1].tolist() == [2]
    assert [row.tolist() for row in rows[1:3]] == SENTENCES[1:3]
    assert rows.lengths.tolist() == [2, 0, 3, 1]
    assert rows.tokens.dtype == np.int32
    with pytest.raises(IndexError):
        rows[4]


def test_some_are_taken_in_the_order_asked_for() -> None:
    taken = Rows.of(SENTENCES).take([2, 0, 2])
    assert [row.tolist() for row in taken] == [SENTENCES[2], SENTENCES[0], SENTENCES[2]]


def test_what_is_cut_keeps_its_last_token() -> None:
    rows = Rows.of([[4, 5, 6, 2], [7, 2], [8, 9, 2]])
    assert [row.tolist() for row in rows.truncate(3)] == [[4, 5, 2], [7, 2], [8, 9, 2]]
    assert [row.tolist() for row in rows.truncate(1)] == [[2], [2], [2]]


def test_padding_comes_after_each_sentence() -> None:
    padded = Rows.of(SENTENCES).pad([0, 2, 1])
    assert padded.tolist() == [[5, 2, PAD], [7, 8, 2], [PAD] * 3]
    assert padded.dtype == np.int64


def test_nothing_at_all_is_empty() -> None:
    rows = Rows.of([])
    assert len(rows) == 0
    assert rows.pad([]).shape == (0, 0)


@pytest.mark.parametrize(
    ("length", "block", "expected"),
    [(7, 3, [3, 3, 1]), (6, 3, [3, 3]), (2, 3, [2]), (3, 1, [1, 1, 1]), (0, 3, [])],
)
def test_a_text_is_cut_into_blocks_and_what_is_left(
    length: int, block: int, expected: list[int]
) -> None:
    text = np.arange(4, 4 + length, dtype=np.int32)
    rows = Rows.in_blocks(text, block)
    assert rows.lengths.tolist() == expected
    assert [token for row in rows for token in row.tolist()] == text.tolist()
    assert rows.tokens is text


def test_the_token_before_each_is_known() -> None:
    rows = Rows.in_blocks(np.arange(4, 11, dtype=np.int32), 3)
    assert rows.starts.tolist() == [0, 3, 6]
    assert rows.previous_tokens([2, 0, 1]).tolist() == [9, BOS, 6]
    assert rows.previous_tokens([1]).dtype == np.int64


def test_stretches_may_overlap() -> None:
    text = np.arange(4, 11, dtype=np.int32)
    rows = Rows(text, np.array([3, 5, 7]), np.array([3, 4, 4]))
    assert [row.tolist() for row in rows] == [[4, 5, 6], [5, 6, 7, 8], [7, 8, 9, 10]]
    assert rows.pad([2, 0]).tolist() == [[7, 8, 9, 10], [4, 5, 6, PAD]]
    assert rows.starts.tolist() == [0, 1, 3]
    assert rows.previous_tokens([0, 1, 2]).tolist() == [BOS, 4, 6]
    assert [row.tolist() for row in rows[1:]] == [[5, 6, 7, 8], [7, 8, 9, 10]]


def test_rows_are_led_by_a_token_each() -> None:
    both = Rows.of([[5, 6, 2], [2], [7, 2]])
    assert [row.tolist() for row in both.prepended(9)] == [[9, 5, 6, 2], [9, 2], [9, 7, 2]]
    assert both.prepended(9).lengths.tolist() == [4, 2, 3]
    assert both.prepended(9).tokens.dtype == np.int32
    own = both.prepended(np.array([8, 9, 8]))
    assert [row.tolist() for row in own] == [[8, 5, 6, 2], [9, 2], [8, 7, 2]]
    cut = both[1:].prepended(4)
    assert [row.tolist() for row in cut] == [[4, 2], [4, 7, 2]]
