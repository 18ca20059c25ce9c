"""Batches of sentence pairs, and the entries of their translation table."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from latentheads.contrib.align import bitext as module
from latentheads.contrib.align.bitext import PREFIXES, distinct_keys, group_lines, make_bitext
from latentheads.contrib.align.vocabulary import PrefixClasses, Vocabulary
from tests.terminal import showing_progress

PAIRS = [(["b", "a"], ["x"]), ([], ["x"]), (["a"], ["y", "x"]), (["a"], [])]


@pytest.mark.parametrize("ranks", [1, 2**16])
@pytest.mark.parametrize(("blocks", "order"), [(1, [(0,), (2,)]), (99, [(2,), (0,)])])
def test_every_cell_is_the_entry_of_its_words(
    blocks: int, order: list[tuple[int, ...]], ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RANKS", ranks)
    monkeypatch.setattr(module, "BATCH_CELLS", 2)
    monkeypatch.setattr(module, "BLOCK_CELLS", blocks)
    monkeypatch.setattr(module, "CHUNK", 1)
    text = make_bitext(PAIRS)
    pairs = text.pairs
    assert (pairs.entries, text.size) == (3, 4)
    assert [batch.indices for batch in text.batches] == order
    for batch in text.batches:
        for row, index in enumerate(batch.indices):
            source, target = PAIRS[index]
            entries = batch.entries[row, : len(target), : len(source)].long()
            assert [pairs.source.words[i] for i in pairs.pair_source[entries[0]]] == source
            assert [pairs.target.words[i] for i in pairs.pair_target[entries[:, 0]]] == target


def test_padding_has_an_entry_of_its_own() -> None:
    (batch,) = make_bitext(PAIRS).batches
    assert batch.indices == (2, 0)
    assert (batch.entries == 3).tolist() == [
        [[False, True], [False, True]],
        [[False] * 2, [True] * 2],
    ]
    assert batch.source_mask.tolist() == [[True, False], [True, True]]
    assert batch.target_mask.tolist() == [[True, True], [True, False]]


def test_lines_of_a_batch_are_of_similar_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_CELLS", 2_000)
    lengths = list(itertools.product(range(1, 30), range(1, 30)))
    groups = list(group_lines([(np.zeros(s), np.zeros(t)) for s, t in lengths]))
    assert sorted(itertools.chain(*groups)) == list(range(len(lengths)))
    longest = [[max(lengths[i][side] for i in group) for side in (0, 1)] for group in groups]
    padded = sum(len(group) * s * t for group, (s, t) in zip(groups, longest, strict=True))
    assert sum(s * t for s, t in lengths) > 0.85 * padded  # .79 in the order of lengths


def test_the_reverse_exchanges_both_sides() -> None:
    text = make_bitext(PAIRS)
    back = text.reverse()
    assert (back.pairs.source, back.pairs.target) == (text.pairs.target, text.pairs.source)
    torch.testing.assert_close(back.batches[0].entries, text.batches[0].entries.mT)
    assert back.target_counts.tolist() == [1, 2]
    assert text.target_counts.tolist() == [2, 1]


def test_runs_of_keys_are_joined_as_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 3)
    parts = [np.random.default_rng(seed).integers(0, 50, seed) for seed in range(1, 14)]
    expected = np.unique(np.concatenate(parts))
    np.testing.assert_array_equal(distinct_keys(iter(parts)), expected)
    assert len(distinct_keys([])) == 0


def test_words_of_a_class_share_their_first_letters() -> None:
    vocabulary = Vocabulary(("haus", "hausboot", "hand", "ha"))
    four, two = (PrefixClasses.of(vocabulary, letters) for letters in (4, 2))
    assert four.of_word.tolist() == [0, 0, 1, 2]
    assert two.of_word.tolist() == [0, 0, 0, 0]
    assert four.shorten(torch.tensor([2, 0]), two).tolist() == [0, 0]
    assert four.with_words(["hausherr", "ufer"]).tolist() == [0, 0, 1, 2, 0, -1]


def test_pairs_of_classes_are_those_of_the_words_of_their_entries() -> None:
    text = make_bitext(
        [(["haus", "hausboot", "rot"], ["house", "houses", "red"]), (["rot"], ["r"])]
    )
    entry = torch.arange(text.pairs.entries)
    for level, letters in zip(text.pairs.levels, sorted(PREFIXES, reverse=True), strict=True):
        entry = level.pair[entry]
        sides = zip(text.pairs.pair_source.tolist(), text.pairs.pair_target.tolist(), strict=True)
        prefixes = [
            (text.pairs.source.words[s][:letters], text.pairs.target.words[t][:letters])
            for s, t in sides
        ]
        names = [list(side.ids) for side in (level.source, level.target)]
        actual = [
            (names[0][level.pair_source[pair]], names[1][level.pair_target[pair]]) for pair in entry
        ]
        assert actual == prefixes
        assert len(level.pair_source) == len(set(prefixes))


def test_a_terminal_shows_how_far_the_pairs_of_words_are() -> None:
    with showing_progress() as stream:
        make_bitext(PAIRS)
    for stage in ("reading pairs", "collecting pairs of words", "grouping words", "finding pairs"):
        assert stage in stream.getvalue()
