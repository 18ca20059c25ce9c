"""A corpus of several tasks: its text, its tags, its batches, its truth."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from latentheads.batch import EOS, SPECIALS
from latentheads.corpora import Corpus, Mixture, Part, Stream, Task, batches
from latentheads.corpora.cache import cached
from latentheads.corpora.corpus import draw_pairs
from latentheads.corpora.grammar import sample
from latentheads.corpora.mixed import draw_tasks, parallel_tasks, tag_of
from latentheads.corpora.parallel import PairOptions, parallel
from latentheads.corpora.subwords import vocabulary_from_json
from latentheads.corpora.text import Pair
from latentheads.corpora.vocabulary import Tagged

SIZES = {"train": 60, "valid": 5, "test": 7}


def mixture(text: str, **options: Any) -> Mixture:
    return Mixture(tuple(Task.read(word, "en") for word in text.split(",")), **options)


def lines(part: str, task: Task) -> Iterator[Pair]:
    """Text in which a task says its name; an empty pair first; de is large, the others small."""
    yield ("", "<2de> <eos>") if part == "train" else ("la", "la la")
    for number in range(SIZES[part] // (1 if task.target == "de" else 4)):
        tail = " la" * (number % 5)
        yield f"{task.source} <2de> {number}{tail}", f"{task.target} {task.domain} {number}{tail}"


def made(
    text: str, temperature: float = 1.0, one_task: bool = False, tell: Any = None, **options: Any
) -> Corpus:
    mixed = mixture(text, temperature=temperature, one_task=one_task)
    return parallel_tasks("pets", mixed, lines, PairOptions(**{"types": 300, **options}), tell)


def read(corpus: Corpus, part: Part) -> list[Pair]:
    return [
        (corpus.source.decode(left.tolist()), corpus.target.decode(right.tolist()))
        for left, right in zip(part.sources, part.targets, strict=True)
    ]


@pytest.mark.parametrize("text", ["de,fr,bible:fr", "de-en,fr-en", "de-fr,fr-de,en-de,de-en"])
@pytest.mark.parametrize("options", [{}, {"tokenised": True}, {"joint": False}])
def test_every_part_holds_the_pairs_of_each_task_behind_its_tag(
    text: str, options: dict[str, Any]
) -> None:
    corpus = made(text, **options)
    tags = corpus.train.mixture.tags
    assert (corpus.source is corpus.target) == options.get("joint", True)
    for name in SIZES:
        part, found, expected = getattr(corpus, name), [], []
        for place, task in enumerate(corpus.tasks):
            pairs = list(lines(name, task))[1 if name == "train" else 0 :]
            found += [place] * len(pairs)
            expected += pairs
        assert part.task.tolist() == found
        assert read(corpus, part) == expected
        assert list(part.references) == ([r for _, r in expected] if name != "train" else [])
        firsts = [int(row[0]) for row in part.sources]
        if tags:
            assert firsts == [tag_of(corpus.source, corpus.tasks[place]) for place in found]
        else:
            assert not isinstance(corpus.source, Tagged)
        assert all(int(row[-1]) == EOS for row in part.sources)
        assert part.targets.tokens.max() < len(corpus.target)


def test_no_text_becomes_a_tag_and_a_tag_says_nothing() -> None:
    source = made("de,fr").source
    assert source.tags == ("<2de>", "<2fr>")
    text = "<2de> <2fr>"
    ids = source.encode(text)
    assert max(ids) < len(source.plain) == len(source) - 2
    assert source.decode([source.tag("<2de>"), *ids[:-1], source.tag("<2fr>"), EOS, 5]) == text
    assert source.encode_all([text])[0].tolist() == ids
    assert vocabulary_from_json(source.to_json()).to_json() == source.to_json()


def test_a_source_without_tags_has_none_to_name() -> None:
    with pytest.raises(ValueError, match="no tags"):
        tag_of(made("de-en,fr-en").source, Task("fr", "en"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tags": ["<2de>", 3]}, "a vocabulary tagged has tags, a list of strings"),
        ({"tags": ["<2de>", "<2de>"]}, "has each tag once"),
        ({"plain": None}, "a vocabulary is a JSON object, got NoneType"),
    ],
)
def test_a_malformed_vocabulary_with_tags_is_refused(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        vocabulary_from_json({**made("de,fr").source.to_json(), **changes})


def test_cleaning_is_counted_for_each_task() -> None:
    told: list[str] = []
    made("de,bible:fr", tell=told.append)
    assert [line.partition(" training")[0] for line in told] == [
        "en-de: 60 of 61",
        "bible:en-fr: 15 of 16",
    ]


@pytest.mark.parametrize("name", ["train", "valid", "test"])
@pytest.mark.parametrize("left", [[], [("la", ""), ("la la", " ")]])
def test_a_task_without_text_is_named(name: str, left: list[Pair]) -> None:
    def without(part: str, task: Task) -> Iterator[Pair]:
        return iter(left) if (part, task.target) == (name, "fr") else lines(part, task)

    lacks = f"no {'word in the targets of' if left else 'pair in'} {name} of"
    said = "nothing to train on in" if name == "train" else lacks
    with pytest.raises(ValueError, match=f"^pets has {said} en-fr"):
        parallel_tasks("pets", mixture("de,fr"), without, PairOptions(types=300))


def test_one_task_is_the_corpus_of_its_pairs() -> None:
    task = Task("en", "de")
    pairs = [list(lines(part, task)) for part in SIZES]
    plain = parallel("pets", *pairs, PairOptions(types=300))
    alone = made("de")
    for name in SIZES:
        mine, other = getattr(alone, name), getattr(plain, name)
        assert np.array_equal(mine.targets.tokens, other.targets.tokens)
        assert np.array_equal(mine.sources.tokens, other.sources.tokens)


def test_batches_without_tasks_are_what_they_were() -> None:
    part, digest = draw_pairs(sentences=307, held_out=11).train, hashlib.sha256()
    for seed, epoch in ((None, 0), (3, 0), (3, 2)):
        for batch in batches(part, 97, seed, epoch):
            assert (batch.source_task, batch.target_task, batch.one_task) == (None, None, False)
            found = batch.sentences.tolist(), batch.source.tolist(), batch.target.tolist()
            digest.update(repr(found).encode())
    assert digest.hexdigest()[:16] == "52c3b2109e1ca958"


def places(part: Part, **options: Any) -> list[int]:
    return [place for batch in batches(part, 97, **options) for place in batch.sentences.tolist()]


@pytest.mark.parametrize("one_task", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 5.0])
def test_every_sentence_is_evaluated_once(temperature: float, one_task: bool) -> None:
    part = made("de,fr,cs-de", temperature, one_task).train
    assert sorted(places(part)) == list(range(len(part)))


@pytest.mark.parametrize("one_task", [False, True])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0, 5.0, math.inf])
def test_an_epoch_has_the_share_of_each_task(temperature: float, one_task: bool) -> None:
    part = made("de,fr,cs-de", temperature, one_task).train
    sizes = np.bincount(part.task).tolist()
    assert sizes == [60, 15, 60]
    for epoch in range(3):
        found = places(part, seed=3, epoch=epoch)
        assert np.bincount(part.task[found]).tolist() == part.mixture.counts(sizes)
        if temperature == 1:
            assert sorted(found) == list(range(len(part)))


@pytest.mark.parametrize("temperature", [0.5, 5.0, math.inf])
def test_over_epochs_the_sentences_of_a_task_come_equally_often(temperature: float) -> None:
    part = made("de,fr,cs-de", temperature).train
    times = np.zeros(len(part), int)
    for epoch in range(7):
        np.add.at(times, places(part, seed=3, epoch=epoch), 1)
        for task in range(3):
            own = times[part.places(task)]
            assert own.max() - own.min() <= 1


def test_a_batch_carries_the_tasks_of_its_sentences() -> None:
    part = made("de,fr,cs-de").train
    for batch in batches(part, 97, seed=1):
        tasks = [part.mixture.tasks[part.task[place]] for place in batch.sentences.tolist()]
        sides = zip(batch.source_task.tolist(), batch.target_task.tolist(), strict=True)
        named = [(part.mixture.sources[left], part.mixture.targets[right]) for left, right in sides]
        assert named == [(task.source, task.target) for task in tasks]
        assert batch.one_task == (len(set(named)) == 1)


def test_batches_may_be_of_one_task_each_and_stay_within_their_budget() -> None:
    part = made("de,fr,cs-de", 5.0, one_task=True).train
    for options in ({}, {"seed": 1}, {"seed": 1, "epoch": 4}):
        for batch in batches(part, 97, **options):
            assert batch.one_task
            assert len(set(part.task[batch.sentences.numpy()])) == 1
            assert max(batch.source.numel(), batch.target.numel()) <= 97
    plain = made("de,fr,cs-de").train
    assert not all(batch.one_task for batch in batches(plain, 97, seed=1))


def taken(stream: Stream, number: int, *start: Any) -> list[Any]:
    return list(itertools.islice(stream.updates(*start), number))


def sentences(update: Any) -> list[list[int]]:
    return [batch.sentences.tolist() for batch, weight in update.shares if weight]


@pytest.mark.parametrize("one_task", [False, True])
def test_a_stream_of_tasks_goes_on_from_any_place_in_any_number_of_processes(
    one_task: bool,
) -> None:
    part = made("de,fr,cs-de", 5.0, one_task).train
    whole = taken(Stream(part, 97, seed=3, accumulate=2), 70)
    assert whole[-1].after.epoch > 2
    for number in (1, 20, 41):
        rest = taken(Stream(part, 97, 3, accumulate=2), 9, whole[number - 1].after)
        assert [sentences(u) for u in rest] == [sentences(u) for u in whole[number : number + 9]]
    shared = [taken(Stream(part, 97, 3, 2, rank=rank, processes=2), 70) for rank in range(2)]
    for one, *two in zip(whole, *shared, strict=True):
        for place, (batch, _) in enumerate(one.shares):
            halves = [share[0] for share in (u.shares[place] for u in two) if share[1]]
            together = torch.cat([half.sentences for half in halves])
            tasks = torch.cat([half.target_task for half in halves])
            order, mine = together.argsort(stable=True), batch.sentences.argsort(stable=True)
            assert torch.equal(together[order], batch.sentences[mine])
            assert torch.equal(tasks[order], batch.target_task[mine])
        assert {update.tokens for update in two} == {one.tokens}


def test_some_sentences_of_a_part_are_a_part() -> None:
    corpus = made("de,fr")
    own = corpus.test.take(corpus.test.places(1))
    assert read(corpus, own) == list(lines("test", Task("en", "fr")))
    assert own.references == [right for _, right in lines("test", Task("en", "fr"))]
    assert set(own.task.tolist()) == {1}
    assert own.mixture is corpus.test.mixture


def test_a_kept_corpus_comes_back_and_is_mixed_as_is_asked(tmp_path: Path) -> None:
    corpus = made("de,fr")
    cached(tmp_path, "key", lambda: corpus)
    kept = cached(tmp_path, "key", lambda: pytest.fail("made again"))
    assert kept.tasks == ()
    mixed = kept.mixed(mixture("de,fr", temperature=5.0))
    assert mixed.tasks == corpus.tasks
    assert mixed.train.mixture is not None
    assert (mixed.train.mixture.sources, mixed.train.mixture.targets) == (("en",), ("de", "fr"))
    for name in SIZES:
        assert getattr(kept, name).task.tolist() == getattr(corpus, name).task.tolist()
        assert read(mixed, getattr(mixed, name)) == read(corpus, getattr(corpus, name))
        assert getattr(mixed, name).mixture.temperature == 5
    (broken,) = tmp_path.glob("*/test.task.npy")
    np.save(broken, np.full(len(corpus.test), 2, np.int32))
    again = cached(tmp_path, "key", lambda: corpus)
    assert again.test.task.tolist() == corpus.test.task.tolist()


THREE = "news:velu,talk:velu,tamir,korin-en,velu-tamir"


@pytest.fixture(scope="module")
def drawn() -> Corpus:
    return draw_tasks(mixture(THREE), [60, 50, 40, 30, 20], 6)


def test_the_grammar_draws_as_many_as_asked_of_each_task(drawn: Corpus) -> None:
    assert np.bincount(drawn.train.task).tolist() == [60, 50, 40, 30, 20]
    for part in (drawn.valid, drawn.test):
        assert np.bincount(part.task).tolist() == [6] * 5
    assert drawn.source.tags == ("<2velu>", "<2tamir>", "<2en>")
    assert drawn.target.words[: len(SPECIALS)] == list(SPECIALS)


def test_links_of_every_direction_stand_behind_the_tag() -> None:
    drawn = draw_tasks(mixture("velu,tamir,korin-en,velu-tamir"), [300] * 4, 10)
    by_source = {
        language: {" ".join(s.source): s for s in sample(1000, language=language)}
        for language in ("velu", "tamir", "korin")
    }
    by_target = {
        language: {" ".join(s.target): s for s in found.values()}
        for language, found in by_source.items()
    }
    part = drawn.test
    checked = set()
    for place, (left, right) in enumerate(zip(part.sources, part.references, strict=True)):
        task, words = drawn.tasks[part.task[place]], drawn.source.decode(left.tolist())
        found = {(source - 1, target) for source, target in part.links[place]}
        if "<unk>" in words:
            continue
        if task.source == "en":
            wanted = set(by_source[task.target][words].alignment)
        elif task.target == "en":
            wanted = {(b, a) for a, b in by_target[task.source][words].alignment}
        else:
            one = by_target[task.source][words]
            other = dict(by_source[task.target][" ".join(one.source)].alignment)
            wanted = {(b, other[a]) for a, b in one.alignment}
        assert found == wanted
        assert {target for _, target in found} == set(range(len(right.split())))
        checked.add(task.direction)
    assert len(checked) == 4


def test_sentences_of_the_grammar_are_of_their_task_and_none_is_tested_on_that_was_seen(
    drawn: Corpus,
) -> None:
    domains: dict[tuple[str, str], set[str]] = defaultdict(set)
    english: dict[str, set[str]] = {"train": set(), "held out": set()}
    for language in ("velu", "tamir", "korin"):
        for sentence in sample(400, language=language):
            text = " ".join(sentence.source), " ".join(sentence.target)
            domains[text].add(sentence.domain)
            domains[text[::-1]].add(sentence.domain)
    for name in SIZES:
        part = getattr(drawn, name)
        for place, (left, right) in enumerate(read(drawn, part)):
            task = drawn.tasks[part.task[place]]
            if "<unk>" in left or "<unk>" in right or "en" not in (task.source, task.target):
                continue
            assert {"", *domains[left, right]} >= {task.domain}
            side = left if task.source == "en" else right
            english["train" if name == "train" else "held out"].add(side)
    assert len(english["held out"]) > 9
    assert not english["train"] & english["held out"]


def test_the_truth_is_that_of_the_domain_where_the_model_may_know_it() -> None:
    text, sizes = "news:velu,talk:velu,news:tamir", [50, 50, 50]
    mixed = draw_tasks(mixture(text), sizes, 2)
    told = draw_tasks(mixture(text, apart="domain"), sizes, 2)
    assert read(mixed, mixed.train) == read(told, told.train)
    truths = [(part.truth, part.task) for part in (mixed.train, told.train)]
    (one, task), (other, _) = truths
    assert [a for a, t in zip(one, task, strict=True) if t == 2] == [
        b for b, t in zip(other, task, strict=True) if t == 2
    ]
    for place in range(2):
        own = [(a, b) for a, b, t in zip(one, other, task, strict=True) if t == place]
        assert any(a != b for a, b in own)
    assert sum(other) > sum(one)


def test_the_truth_of_a_task_is_known_where_english_is_translated(drawn: Corpus) -> None:
    train = drawn.train
    known = [train.take(train.places(task)).truth for task in range(5)]
    assert [all(map(math.isfinite, truth)) for truth in known] == [True, True, True, False, False]
    assert [all(map(math.isnan, truth)) for truth in known] == [False, False, False, True, True]


@pytest.mark.parametrize(
    ("text", "sizes", "message"),
    [
        ("de", [9], "unknown language 'de' of task en-de: choose from en, velu, tamir"),
        ("sports:velu", [9], "unknown domain 'sports' of task sports:en-velu: choose from news"),
        ("velu", [0], "sentences and held_out must be positive"),
    ],
)
def test_what_the_grammar_lacks_is_named(text: str, sizes: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw_tasks(mixture(text), sizes, 3)
