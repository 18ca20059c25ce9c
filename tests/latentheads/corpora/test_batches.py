"""Batches hold every sentence once, within their budget, in an order that the seed decides."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

import latentheads as lh
from latentheads.batch import BOS, PAD, Batch
from latentheads.corpora import Part, Rows, batches, windows
from latentheads.corpora.batches import TOKENS, batch_indices, iterate_batches, padding_fraction
from tests.latentheads.corpora.texts import TEXTS, places_of, running, story
from tests.typechecking import unchecked


@pytest.mark.parametrize("pool", [100, 2])
def test_every_sentence_comes_once_an_epoch(
    part: Part, pool: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(batch_indices.__globals__, "POOL", pool)
    assert sorted(places_of(part)) == sorted(places_of(part, seed=3)) == list(range(307))


def test_no_batch_exceeds_its_budget_on_either_side(part: Part) -> None:
    for batch in batches(part, 97, seed=1):
        assert max(batch.target.numel(), batch.source.numel()) <= 97 or len(batch) == 1


def test_order_depends_on_seed_and_epoch_alone(part: Part) -> None:
    assert places_of(part, seed=3, epoch=1) == places_of(part, seed=3, epoch=1)
    assert places_of(part, seed=3, epoch=1) != places_of(part, seed=3, epoch=2)
    assert places_of(part, seed=3, epoch=1) != places_of(part, seed=4, epoch=1)


def test_a_tag_stands_before_the_sentence_that_it_is_of(part: Part) -> None:
    tagged = replace(part, tags=np.arange(len(part), dtype=np.int32))
    for batch in batches(tagged, 97, seed=1):
        assert batch.before is not None
        assert batch.before.tolist() == batch.sentences.tolist()


def test_padding_is_counted_on_both_sides(part: Part) -> None:
    computed_batches = list(batches(part, 97, seed=3))
    sides = [side for batch in computed_batches for side in (batch.target, batch.source)]
    held = sum(side.numel() for side in sides)
    empty = sum(int((side == PAD).sum()) for side in sides)
    assert padding_fraction(part, 97, 3) == pytest.approx(empty / held)


def test_batches_do_not_sort_by_the_shorter_side() -> None:
    """Of the same length on the longer side, as those of one language may differ on the other."""
    sizes = [(7, 2), (7, 5)] * 20
    rows = [Rows.of([[9] * size for size in side]) for side in zip(*sizes, strict=True)]
    widths = [set(batch.source.ne(PAD).sum(-1).tolist()) for batch in batches(Part(*rows), 70, 1)]
    assert widths == [{2, 5}] * 4


@given(st.lists(st.integers(1, 5), min_size=1, max_size=60))
@example([5, 3] * 150)  # so many that a sort which is not stable moves them
def test_sentences_of_equal_length_keep_their_order(lengths: list[int]) -> None:
    part = Part(Rows.of([[9] * length for length in lengths]), None)
    in_order = sorted(range(len(lengths)), key=lambda index: lengths[index])
    assert places_of(part, shuffle=False) == in_order


def test_a_batch_carries_its_sentences_and_the_size_of_the_corpus(part: Part) -> None:
    batch = next(iter(batches(part, 97, seed=1)))
    for row, sentence in zip(batch.target.tolist(), batch.sentences.tolist(), strict=True):
        expected = part.targets[sentence].tolist()
        assert row[: len(expected)] == expected
    assert batch.size == 307


def test_a_whole_corpus_is_no_part() -> None:
    with pytest.raises(ValueError, match=r"^part must be one of a corpus, as corpus.test, got Co"):
        unchecked(batch_indices)(story(), 100)


def test_the_batches_of_a_part_are_as_good_as_the_part(part: Part) -> None:
    cut = list(batches(part, TOKENS, shuffle=False))
    again = list(iterate_batches(part, "parts"))
    assert [batch.target.tolist() for batch in again] == [batch.target.tolist() for batch in cut]
    assert list(iterate_batches(iter(cut), "parts")) == cut


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (5, "must be a part of the corpus, as corpus.test, or batches, got int"),
        ((), "must be at least one batch, got none"),
        (["a"], "must be made of Batch, got str"),
    ],
)
def test_what_is_no_batches_is_refused_by_its_name(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^parts {message}$"):
        list(iterate_batches(given, "parts"))


def test_a_block_is_read_behind_the_token_that_stands_before_it() -> None:
    part = running(17, 5)
    text = part.targets.tokens.tolist()
    (batch,) = batches(part, 99, shuffle=False)
    in_memory = Batch(
        torch.tensor([[*text[15:], PAD, PAD, PAD], text[:5], text[5:10], text[10:15]]),
        before=torch.tensor([text[14], BOS, text[4], text[9]]),
    )
    assert batch.sentences.tolist() == [3, 0, 1, 2]
    assert torch.equal(batch.target, in_memory.target)
    assert torch.equal(batch.decoder_input, in_memory.decoder_input)
    rows = zip(batch.decoder_input.tolist(), batch.target_valid.tolist(), strict=True)
    fed = [[token for token, real in zip(*row, strict=True) if real] for row in rows]
    assert [token for row in (*fed[1:], fed[0]) for token in row] == [BOS, *text[:-1]]
    assert (batch.size, batch.context, batch.source) == (4, 0, None)


def test_blocks_that_are_taken_are_read_behind_the_token_that_stood_before_them() -> None:
    part = running(19, 7)
    taken = part.take([2, 1])
    (batch,) = batches(taken, 99, shuffle=False)
    assert batch.before.tolist() == part.targets.previous_tokens([2, 1]).tolist()
    assert [row.tolist() for row in taken.targets] == [part.targets[p].tolist() for p in (2, 1)]
    assert taken.tokens == 12
    assert repr(taken.targets) == "Rows(2 rows, 12 tokens)"


def test_the_first_blocks_have_windows_of_their_own() -> None:
    text = running(19, 7)
    targets = [batch.target[:, batch.context :] for batch in windows(text.first(2), 3, 99)]
    scored = [token for rows in targets for row in rows.tolist() for token in row]
    assert scored == text.targets.tokens[:14].tolist()


def test_blocks_are_shuffled_without_losing_what_stands_before(part: Part) -> None:
    text = running(97, 7)
    for batch in batches(text, 31, seed=5, epoch=2):
        before = text.targets.previous_tokens(batch.sentences.tolist())
        assert batch.before.tolist() == before.tolist()
    assert all(batch.before is None for batch in batches(part, 97, seed=5))


def scored(part: Part, context: int, tokens: int) -> list[tuple[int, int]]:
    """Where each scored token stands, and how many stand before it in its window; in order."""
    text, actual = part.targets.tokens.tolist(), []
    for batch in windows(part, context, tokens):
        assert batch.target.numel() <= max(tokens, part.block_size)
        assert (batch.target != PAD).all()
        for row, before in zip(batch.target.tolist(), batch.before.tolist(), strict=True):
            places = [
                start
                for start in range(len(text) - len(row) + 1)
                if text[start : start + len(row)] == row
                and before == (text[start - 1] if start else BOS)
            ]
            (start,) = places
            actual += [(start + index, index) for index in range(batch.context, len(row))]
        assert batch.scored.tolist() == batch.target[:, batch.context :].tolist()
    return actual


@pytest.mark.parametrize(("length", "block", "context"), TEXTS)
@pytest.mark.parametrize("tokens", [1, 11, 999])
def test_windows_score_every_token_once_behind_enough_context(
    length: int, block: int, context: int, tokens: int
) -> None:
    """A text of distinct tokens says of each window where it stands."""
    part = Part(
        Rows.in_blocks(np.arange(4, 4 + length, dtype=np.int32), block), None, block_size=block
    )
    computed_scored = scored(part, context, tokens)
    assert [position for position, _ in computed_scored] == list(range(length))
    for index, before in computed_scored:
        assert before == index if index < block else context <= before < block


@pytest.mark.parametrize("length", [4, 5, 10, 17])
def test_windows_without_context_are_the_blocks(length: int) -> None:
    part = running(length, 5)
    rows, places, computed_windows = (
        part.targets,
        range(len(part.targets)),
        list(windows(part, 0, 11)),
    )
    targets = [row.tolist() for batch in computed_windows for row in batch.target]
    assert targets == [rows[index].tolist() for index in places]
    before = [token for batch in computed_windows for token in batch.before.tolist()]
    assert before == rows.previous_tokens(places).tolist()
    assert {batch.context for batch in computed_windows} == {0}


def test_a_window_for_every_token_is_possible() -> None:
    first, *others = windows(running(17, 5), 4, 1)
    assert (first.context, first.target.shape) == (0, (1, 5))
    assert [(w.context, w.target.shape) for w in others] == [(4, (1, 5))] * 12


def test_batches_are_shuffled_unless_they_need_not_be() -> None:
    part = lh.data.Grammar(sentences=200, held_out=5).load().train

    def widths(**options: Any) -> list[int]:
        return [batch.target.shape[1] for batch in lh.data.batches(part, 97, **options)]

    by_length = widths(shuffle=False)
    assert by_length == sorted(by_length)
    assert widths() == widths(seed=0) != by_length
    assert sorted(set(widths())) == sorted(set(widths(seed=1, epoch=2)))
    rises = sum(left <= right for left, right in pairwise(widths()))
    assert 0.2 < rises / len(by_length) < 0.8
