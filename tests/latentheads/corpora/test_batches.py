"""Batches hold every sentence once, within their budget, in an order that the seed decides."""

import pytest

from latentheads.corpora import Part, batches
from latentheads.corpora.corpus import grammar


@pytest.fixture(scope="module")
def part() -> Part:
    return grammar(sentences=307, held_out=11).train


def places(part: Part, **options: int) -> list[int]:
    return [place for batch in batches(part, 97, **options) for place in batch.sentences.tolist()]


def test_every_sentence_comes_once_an_epoch(part: Part) -> None:
    assert sorted(places(part)) == sorted(places(part, seed=3)) == list(range(307))


def test_no_batch_exceeds_its_budget_on_either_side(part: Part) -> None:
    for batch in batches(part, 97, seed=1):
        assert max(batch.target.numel(), batch.source.numel()) <= 97 or len(batch) == 1


def test_order_depends_on_seed_and_epoch_alone(part: Part) -> None:
    assert places(part, seed=3, epoch=1) == places(part, seed=3, epoch=1)
    assert places(part, seed=3, epoch=1) != places(part, seed=3, epoch=2)
    assert places(part, seed=3, epoch=1) != places(part, seed=4, epoch=1)


def test_a_batch_carries_its_sentences_and_the_size_of_the_corpus(part: Part) -> None:
    batch = next(iter(batches(part, 97, seed=1)))
    for row, place in zip(batch.target.tolist(), batch.sentences.tolist(), strict=True):
        expected = part.targets[place].tolist()
        assert row[: len(expected)] == expected
    assert batch.size == 307


def test_a_budget_of_nothing_is_refused(part: Part) -> None:
    with pytest.raises(ValueError, match="tokens must be positive, got 0"):
        next(iter(batches(part, 0)))
