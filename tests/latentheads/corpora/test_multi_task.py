"""A corpus of several tasks: its text, its tags, its batches."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from latentheads.batch import EOS
from latentheads.corpora import Corpus, PartLoader, Task, batches
from latentheads.corpora.cache import cached
from latentheads.corpora.from_grammar import sample_pairs
from latentheads.corpora.multi_task import TaskText, encode_task_texts, parallel_tasks
from latentheads.corpora.parallel import PairOptions, encode_pairs
from latentheads.corpora.text import SentencePair
from latentheads.corpora.vocabulary import Tagged, Words, tag_of, vocabulary_from_json
from tests.latentheads.corpora.texts import (
    MIXED_SIZES,
    mixed_lines,
    mixed_pets,
    mixture_of,
    pairs_of,
    places_in,
    places_of,
    take,
)


@pytest.mark.parametrize("text", ["de,fr,bible:fr", "de-en,fr-en", "de-fr,fr-de,en-de,de-en"])
@pytest.mark.parametrize("options", [{}, {"tokenised": True}, {"joint": False}])
def test_every_part_holds_the_pairs_of_each_task_behind_its_tag(
    text: str, options: dict[str, Any]
) -> None:
    corpus = mixed_pets(text, **options)
    tags = corpus.train.mixture.tags
    assert (corpus.source is corpus.target) == options.get("joint", True)
    for name in MIXED_SIZES:
        part, actual, expected = getattr(corpus, name), [], []
        for index, task in enumerate(corpus.tasks):
            pairs = list(mixed_lines(name, task))[1 if name == "train" else 0 :]
            actual += [index] * len(pairs)
            expected += pairs
        assert part.task.tolist() == actual
        assert pairs_of(corpus, part) == expected
        assert list(part.references) == ([r for _, r in expected] if name != "train" else [])
        firsts = [int(row[0]) for row in part.sources]
        if tags:
            assert firsts == [
                tag_of(corpus.source, corpus.tasks[position].target) for position in actual
            ]
        else:
            assert not isinstance(corpus.source, Tagged)
        assert all(int(row[-1]) == EOS for row in part.sources)
        assert part.targets.tokens.max() < len(corpus.target)


def test_no_text_becomes_a_tag_and_a_tag_says_nothing() -> None:
    source = mixed_pets("de,fr").source
    assert source.tags == ("<2de>", "<2fr>")
    text = "<2de> <2fr>"
    ids = source.encode(text)
    assert max(ids) < len(source.plain) == len(source) - 2
    assert source.decode([source.tag("<2de>"), *ids[:-1], source.tag("<2fr>"), EOS, 5]) == text
    assert source.encode_all([text])[0].tolist() == ids
    assert vocabulary_from_json(source.to_json()).to_json() == source.to_json()


def test_cleaning_is_counted_for_each_task() -> None:
    lines: list[str] = []
    mixed_pets("de,bible:fr", log=lines.append)
    counts = [line.partition(" training")[0] for line in lines]
    assert counts == ["en-de: 60 of 61", "bible:en-fr: 15 of 16"]


@pytest.mark.parametrize("name", ["train", "valid", "test"])
@pytest.mark.parametrize("left", [[], [("la", ""), ("la la", " ")]])
def test_a_task_without_text_is_named(name: str, left: list[SentencePair]) -> None:
    def without(part: str, task: Task) -> Iterator[SentencePair]:
        return iter(left) if (part, task.target) == (name, "fr") else mixed_lines(part, task)

    message = (
        "nothing to train on in" if name == "train" else f"no word in the targets of {name} of"
    )
    with pytest.raises(ValueError, match=f"^pets has {message} en-fr"):
        parallel_tasks("pets", mixture_of("de,fr"), without, PairOptions(vocab_size=300))


def test_one_task_is_the_corpus_of_its_pairs() -> None:
    pairs = [list(mixed_lines(part, Task("en", "de"))) for part in MIXED_SIZES]
    plain = Corpus("pets", *encode_pairs("pets", *pairs, PairOptions(vocab_size=300)))
    alone = mixed_pets("de")
    for name in MIXED_SIZES:
        assert pairs_of(alone, getattr(alone, name)) == pairs_of(plain, getattr(plain, name))


def test_batches_without_tasks_are_what_they_were() -> None:
    part, digest = sample_pairs(sentences=307, held_out=11).train, hashlib.sha256()
    for options in ({"shuffle": False}, {"seed": 3}, {"seed": 3, "epoch": 2}):
        for batch in batches(part, 97, **options):
            assert (batch.source_task, batch.target_task, batch.one_task) == (None, None, False)
            actual = batch.sentences.tolist(), batch.source.tolist(), batch.target.tolist()
            digest.update(repr(actual).encode())
    assert digest.hexdigest()[:16] == "52c3b2109e1ca958"


@pytest.mark.parametrize("one_task", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 5.0])
def test_every_sentence_is_evaluated_once(temperature: float, one_task: bool) -> None:
    part = mixed_pets("de,fr,cs-de", temperature, one_task).train
    assert sorted(places_of(part, shuffle=False)) == list(range(len(part)))


@pytest.mark.parametrize("one_task", [False, True])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0, 5.0, math.inf])
def test_an_epoch_has_the_share_of_each_task(temperature: float, one_task: bool) -> None:
    part = mixed_pets("de,fr,cs-de", temperature, one_task).train
    sizes = np.bincount(part.task).tolist()
    assert sizes == [60, 15, 60]
    for epoch in range(3):
        places = places_of(part, seed=3, epoch=epoch)
        assert np.bincount(part.task[places]).tolist() == part.mixture.epoch_counts(sizes)
        if temperature == 1:
            assert sorted(places) == list(range(len(part)))


@pytest.mark.parametrize("temperature", [0.5, 5.0, math.inf])
def test_over_epochs_the_sentences_of_a_task_come_equally_often(temperature: float) -> None:
    part = mixed_pets("de,fr,cs-de", temperature).train
    times = np.zeros(len(part), int)
    for epoch in range(7):
        np.add.at(times, places_of(part, seed=3, epoch=epoch), 1)
        for task in range(3):
            own = times[part.indices_of_task(task)]
            assert own.max() - own.min() <= 1


def test_the_truth_is_not_known_where_either_side_has_an_unknown_word() -> None:
    train = [TaskText([("a", "x")])]
    held_out = [TaskText([("a", "x"), ("b", "x"), ("a", "y")], [-1.0, -2.0, -3.0])]
    sides = Words(["a"]), Words(["x"])
    corpus = encode_task_texts("tiny", mixture_of("de"), [train, held_out, held_out], *sides)
    assert corpus.test.true_log_probs == pytest.approx([-1, math.nan, math.nan], nan_ok=True)


def test_an_epoch_has_other_sentences_of_tasks_of_one_size() -> None:
    part = mixed_pets("de,fr,cs-de", 5.0).train
    chosen = set(places_of(part, seed=3))
    first, third = ([i in chosen for i in part.indices_of_task(task).tolist()] for task in (0, 2))
    assert len(first) == len(third) == 60
    assert sum(first) == sum(third) < 60
    assert first != third


def test_a_batch_carries_the_tasks_of_its_sentences() -> None:
    part = mixed_pets("de,fr,cs-de").train
    for batch in batches(part, 97, seed=1):
        tasks = [part.mixture.tasks[part.task[sentence]] for sentence in batch.sentences.tolist()]
        sides = zip(batch.source_task.tolist(), batch.target_task.tolist(), strict=True)
        named = [(part.mixture.sources[left], part.mixture.targets[right]) for left, right in sides]
        assert named == [(task.source, task.target) for task in tasks]
        assert batch.one_task == (len(set(named)) == 1)


def test_batches_may_be_of_one_task_each_and_stay_within_their_budget() -> None:
    part = mixed_pets("de,fr,cs-de", 5.0, one_task=True).train
    for options in ({"shuffle": False}, {"seed": 1}, {"seed": 1, "epoch": 4}):
        for batch in batches(part, 97, **options):
            assert batch.one_task
            assert len(set(part.task[batch.sentences.numpy()])) == 1
            assert max(batch.source.numel(), batch.target.numel()) <= 97
    plain = mixed_pets("de,fr,cs-de").train
    assert not all(batch.one_task for batch in batches(plain, 97, seed=1))


@pytest.mark.parametrize("one_task", [False, True])
def test_a_stream_of_tasks_goes_on_from_any_place_in_any_number_of_processes(
    one_task: bool,
) -> None:
    part = mixed_pets("de,fr,cs-de", 5.0, one_task).train
    whole = take(PartLoader(part, 97, seed=3, accumulate=2), 70)
    assert whole[-1].next_state.epoch > 2
    for number in (1, 20, 41):
        rest = take(PartLoader(part, 97, 3, accumulate=2), 9, whole[number - 1].next_state)
        assert [places_in(u) for u in rest] == [places_in(u) for u in whole[number : number + 9]]
    shared = [take(PartLoader(part, 97, 3, 2, rank=rank, processes=2), 70) for rank in range(2)]
    for one, *two in zip(whole, *shared, strict=True):
        for index, (batch, _) in enumerate(one.micro_batches):
            halves = [share[0] for share in (u.micro_batches[index] for u in two) if share[1]]
            together = torch.cat([half.sentences for half in halves])
            tasks = torch.cat([half.target_task for half in halves])
            order, mine = together.argsort(stable=True), batch.sentences.argsort(stable=True)
            assert torch.equal(together[order], batch.sentences[mine])
            assert torch.equal(tasks[order], batch.target_task[mine])
        assert {update.tokens for update in two} == {one.tokens}


def test_some_sentences_of_a_part_are_a_part() -> None:
    corpus = mixed_pets("de,fr")
    own = corpus.test.take(corpus.test.indices_of_task(1))
    assert pairs_of(corpus, own) == list(mixed_lines("test", Task("en", "fr")))
    assert own.references == [right for _, right in mixed_lines("test", Task("en", "fr"))]
    assert set(own.task.tolist()) == {1}
    assert own.mixture is corpus.test.mixture


def test_a_kept_corpus_comes_back_and_is_mixed_as_is_asked(tmp_path: Path) -> None:
    corpus = mixed_pets("de,fr")
    cached(tmp_path, "key", lambda: corpus)
    kept = cached(tmp_path, "key", lambda: pytest.fail("made again"))
    assert kept.tasks == ()
    mixed = kept.with_mixture(mixture_of("de,fr", temperature=5.0))
    assert mixed.tasks == corpus.tasks
    assert mixed.train.mixture is not None
    assert (mixed.train.mixture.sources, mixed.train.mixture.targets) == (("en",), ("de", "fr"))
    for name in MIXED_SIZES:
        assert getattr(kept, name).task.tolist() == getattr(corpus, name).task.tolist()
        assert pairs_of(mixed, getattr(mixed, name)) == pairs_of(corpus, getattr(corpus, name))
        assert getattr(mixed, name).mixture.temperature == 5
