"""Held-out sentences that stand in training too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from latentheads.batch import EOS
from latentheads.corpora import Rows
from latentheads.corpora.from_grammar import sample_pairs, sample_text_corpus
from latentheads.corpora.overlap import count_shared


def some_rows(seed: int, number: int, most: int) -> Rows:
    """Short rows of few types, so that many are the same."""
    rng = np.random.default_rng(seed)
    return Rows.of([[*rng.integers(4, 7, rng.integers(most)).tolist(), EOS] for _ in range(number)])


@pytest.mark.parametrize("sides", [1, 2])
def test_the_count_is_that_of_comparing_every_pair(sides: int) -> None:
    train, part = ([some_rows(10 * s + p, 97, 5) for s in range(sides)] for p in (1, 2))
    keys = [[tuple(map(tuple, row)) for row in zip(*rows, strict=True)] for rows in (train, part)]
    expected = sum(key in keys[0] for key in keys[1] if max(map(len, key)) > 1)
    assert 0 < expected < 97
    assert count_shared(train, part) == expected


def test_rows_alike_in_length_and_in_most_tokens_are_told_apart() -> None:
    row = list(range(4, 24))
    others = [[*row[:index], 99, *row[index + 1 :]] for index in range(len(row))]
    assert count_shared([Rows.of(others)], [Rows.of([row])]) == 0
    assert count_shared([Rows.of([*others, row])], [Rows.of([row, others[3], row])]) == 3


def test_empty_lines_and_empty_parts_do_not_count() -> None:
    empty = Rows.of([[EOS], [EOS]])
    assert count_shared([empty], [empty]) == 0
    assert count_shared([Rows.of([])], [Rows.of([[4, EOS]])]) == 0


def test_a_pair_with_another_source_is_another_pair() -> None:
    one, other = Rows.of([[4, EOS]]), Rows.of([[5, EOS]])
    assert count_shared([one, one], [one, other]) == 0
    assert count_shared([one, other], [one, other]) == 1


def test_a_corpus_knows_its_overlap() -> None:
    assert sample_pairs(sentences=100, held_out=20).overlap == (0, 0)
    text = sample_text_corpus(sentences=600, held_out=300)
    seen = {tuple(row) for row in text.train.targets}
    expected = [sum(tuple(row) in seen for row in p.targets) for p in (text.valid, text.test)]
    twice = replace(text, train=text.train.take([*range(600)] * 2))
    assert text.overlap == twice.overlap == tuple(expected)
    assert min(expected) > 0
