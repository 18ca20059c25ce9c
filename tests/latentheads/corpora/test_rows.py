"""Sentences in one flat array."""

import numpy as np
import pytest

from latentheads.batch import PAD
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


def test_padding_comes_after_each_sentence() -> None:
    padded = Rows.of(SENTENCES).pad([0, 2, 1])
    assert padded.tolist() == [[5, 2, PAD], [7, 8, 2], [PAD] * 3]
    assert padded.dtype == np.int64


def test_nothing_at_all_is_empty() -> None:
    rows = Rows.of([])
    assert len(rows) == 0
    assert rows.pad([]).shape == (0, 0)
