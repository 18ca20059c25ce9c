"""The stream of updates: one order for any number of processes, taken up at any place."""

import itertools
import threading

import pytest

from latentheads.batch import Batch
from latentheads.corpora import BatchLoader, Part, PartLoader, Rows, batches
from tests.latentheads.corpora.texts import places_in, running, take


def test_updates_are_the_batches_of_the_epochs(part: Part) -> None:
    actual = take(PartLoader(part, 97, seed=3), 90)
    plan = itertools.chain.from_iterable(batches(part, 97, 3, epoch) for epoch in range(3))
    for update, batch in zip(actual, plan, strict=False):
        assert places_in(update) == [batch.sentences.tolist()]
        assert update.tokens == int(batch.target_valid.sum())


@pytest.mark.parametrize("number", [1, 7, 40])
@pytest.mark.parametrize("block", [0, 7])
def test_a_stream_goes_on_from_any_place(part: Part, number: int, block: int) -> None:
    text, tokens = (running(397, block), 31) if block else (part, 97)
    whole = take(PartLoader(text, tokens, seed=3, accumulate=3), number + 9)
    state = whole[number - 1].next_state
    rest = take(PartLoader(text, tokens, seed=3, accumulate=3), 9, state)
    for one, other in zip(rest, whole[number:], strict=True):
        assert (one.tokens, one.next_state) == (other.tokens, other.next_state)
        assert (places_in(one), fed(one)) == (places_in(other), fed(other))


@pytest.mark.parametrize("processes", [2, 3])
def test_processes_share_the_sentences_of_one_process(part: Part, processes: int) -> None:
    whole = take(PartLoader(part, 97, seed=3, accumulate=2), 9)
    ranks = range(processes)
    shared = [take(PartLoader(part, 97, 3, 2, rank=r, processes=processes), 9) for r in ranks]
    for one, *parts in zip(whole, *shared, strict=True):
        split = zip(*(part.micro_batches for part in parts), strict=True)
        for (batch, _), micro_batches in zip(one.micro_batches, split, strict=True):
            own = [share.sentences.tolist() for share, weight in micro_batches if weight]
            assert sorted(itertools.chain(*own)) == sorted(batch.sentences.tolist())
        assert {part.tokens for part in parts} == {one.tokens}


def test_a_process_without_a_sentence_computes_along_for_nothing() -> None:
    lonely = Part(Rows.of([[5, 2]]), Rows.of([[6, 2]]))
    micro_batches = [
        take(PartLoader(lonely, 9, 0, rank=r, processes=2), 1)[0].micro_batches for r in range(2)
    ]
    assert [weight for ((_, weight),) in micro_batches] == [1.0, 0.0]
    assert len(micro_batches[1][0][0]) == 1


def test_a_thread_prepares_the_same_updates_and_ends(part: Part) -> None:
    stream = PartLoader(part, 97, seed=3)
    ahead = stream.prefetch()
    actual = list(itertools.islice(ahead, 40))
    assert [places_in(u) for u in actual] == [places_in(u) for u in take(stream, 40)]
    ahead.close()
    assert not any(thread.name == "batches" for thread in threading.enumerate())


def test_the_thread_ends_if_its_start_is_interrupted(
    part: Part, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def start_and_interrupt(thread: threading.Thread) -> None:
        start(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", start_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        next(PartLoader(part, 97, seed=3).prefetch())
    assert not any(thread.name == "batches" for thread in threading.enumerate())


def test_a_mistake_in_the_thread_is_raised_where_batches_are_asked_for(part: Part) -> None:
    with pytest.raises(ValueError, match="tokens must be at least 1, got 0"):
        next(PartLoader(part, 0, seed=3).prefetch())


def test_nothing_to_train_on_is_refused(part: Part) -> None:
    with pytest.raises(ValueError, match="sentences of part must be at least one"):
        PartLoader(Part(Rows.of([]), None), 97, 0)


def fed(update: object) -> list[list[list[int]]]:
    return [batch.decoder_input.tolist() for batch, weight in update.micro_batches if weight]


def test_two_processes_share_the_blocks_with_what_stands_before_each() -> None:
    text = running(397, 7)
    whole = take(PartLoader(text, 31, seed=3), 30)
    shared = [take(PartLoader(text, 31, 3, rank=rank, processes=2), 30) for rank in range(2)]
    for one, *two in zip(whole, *shared, strict=True):
        ((batch, _),) = one.micro_batches
        halves = [part.micro_batches[0][0] for part in two if part.micro_batches[0][1]]
        for half in halves:
            before = text.targets.previous_tokens(half.sentences.tolist())
            assert half.decoder_input[:, 0].tolist() == before.tolist()
        blocks = itertools.chain(*(half.sentences.tolist() for half in halves))
        assert sorted(blocks) == sorted(batch.sentences.tolist())
        assert {part.tokens for part in two} == {one.tokens}


def test_batches_of_ones_own_come_in_another_order_in_each_epoch(part: Part) -> None:
    given_batches = [Batch.of([[5, 2]] * n, [[6, 2]] * n, index=range(n)) for n in (1, 2, 3, 4)]
    actual = take(BatchLoader(given_batches, seed=3, accumulate=2), 6)
    sentences = [list(itertools.chain(*places_in(update))) for update in actual]
    epochs = [sentences[2 * n] + sentences[2 * n + 1] for n in range(3)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len(set(map(tuple, epochs))) > 1
    assert {batch.size for update in actual for batch, _ in update.micro_batches} == {10}
    assert [update.tokens for update in actual] == [2 * len(sentence) for sentence in sentences]
    rest = take(BatchLoader(given_batches, seed=3, accumulate=2), 3, actual[2].next_state)
    assert [places_in(u) for u in rest] == [places_in(u) for u in actual[3:]]


def test_batches_that_know_their_corpus_stay_as_they_are() -> None:
    given_batches = [Batch.of([[5, 2]], index=[6], corpus_size=7)]
    (update,) = take(BatchLoader(given_batches), 1)
    assert update.micro_batches[0][0] is given_batches[0]
