"""Batches of sentence pairs, and the entries of their translation table."""

from __future__ import annotations

import pytest
import torch

from latentheads.contrib.align import bitext as module
from latentheads.contrib.align.bitext import make_bitext
from latentheads.contrib.align.vocabulary import Vocabulary

PAIRS = [(["b", "a"], ["x"]), ([], ["x"]), (["a"], ["y", "x"]), (["a"], [])]


def test_every_cell_is_the_entry_of_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_CELLS", 2)
    monkeypatch.setattr(module, "CHUNK", 1)
    text = make_bitext(PAIRS)
    assert (text.entries, text.size) == (3, 4)
    assert [batch.indices for batch in text.batches] == [(2,), (0,)]
    for batch in text.batches:
        for row, index in enumerate(batch.indices):
            source, target = PAIRS[index]
            entries = batch.cells[row, : len(target), : len(source)].long()
            assert [text.source.words[i] for i in text.pair_source[entries[0]]] == source
            assert [text.target.words[i] for i in text.pair_target[entries[:, 0]]] == target


def test_padding_has_an_entry_of_its_own() -> None:
    (batch,) = make_bitext(PAIRS).batches
    assert batch.indices == (2, 0)
    assert (batch.cells == 3).tolist() == [
        [[False, True], [False, True]],
        [[False] * 2, [True] * 2],
    ]
    assert batch.source_mask.tolist() == [[True, False], [True, True]]
    assert batch.target_mask.tolist() == [[True, True], [True, False]]


def test_the_reverse_exchanges_both_sides() -> None:
    text = make_bitext(PAIRS)
    back = text.reverse()
    assert (back.source, back.target) == (text.target, text.source)
    torch.testing.assert_close(back.batches[0].cells, text.batches[0].cells.mT)
    assert back.target_counts.tolist() == [1, 2]
    assert text.target_counts.tolist() == [2, 1]


def test_a_text_may_have_stored_entries_and_a_vocabulary_to_extend() -> None:
    vocabularies = Vocabulary(("q", "a")), Vocabulary(("y", "r"))
    text = make_bitext(PAIRS, vocabularies, torch.tensor([[0, 1], [1, 0]]))
    assert text.source.words == ("q", "a", "b")
    assert text.target.words == ("y", "r", "x")
    pairs = list(zip(text.pair_source.tolist(), text.pair_target.tolist(), strict=True))
    assert pairs == [(0, 1), (1, 0), (1, 2), (2, 2)]


def test_words_of_a_class_share_their_first_letters() -> None:
    vocabulary = Vocabulary(("haus", "hausboot", "hand", "ha"))
    assert vocabulary.prefix_classes(4).tolist() == [0, 0, 1, 2]
    assert vocabulary.prefix_classes(2).tolist() == [0, 0, 0, 0]
    assert vocabulary.matches(Vocabulary(("hand", "haus"))).tolist() == [1, -1, 0, -1]
