"""Corpora drawn from the grammar: their parts, links and truth, of one task or of several."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest

from latentheads.batch import SPECIALS, UNK
from latentheads.corpora import Corpus
from latentheads.corpora.from_grammar import sample_pairs, sample_tasks, sample_text_corpus
from latentheads.corpora.grammar import log_p_sources, sample
from latentheads.corpora.text import PARTS
from tests.latentheads.corpora.texts import mixture_of, pairs_of


def test_no_held_out_source_occurs_in_training() -> None:
    corpus = sample_pairs(sentences=501, held_out=53)
    seen = {tuple(row) for row in corpus.train.sources}
    held_out = [tuple(row) for part in (corpus.valid, corpus.test) for row in part.sources]
    assert len(corpus.valid) == len(corpus.test) == 53
    assert len(set(held_out)) == len(held_out) == 106
    assert not seen & set(held_out)


def test_truth_is_a_log_probability_of_each_sentence() -> None:
    corpus = sample_pairs(sentences=203, held_out=53)
    for part in (corpus.train, corpus.valid, corpus.test):
        assert len(part.true_log_probs) == len(part)
        assert not any(value > 0 for value in part.true_log_probs)


def test_the_truth_of_a_pair_mixes_the_domains_that_no_model_is_told() -> None:
    corpus = sample_pairs(sentences=203, held_out=3)
    sentences = sample(203)
    assert corpus.train.true_log_probs == [sentence.log_p_mixture for sentence in sentences]
    assert corpus.train.true_log_probs != [sentence.log_p_target for sentence in sentences]


def test_the_truth_of_a_sentence_with_an_unknown_word_is_not_known() -> None:
    part = sample_pairs(sentences=503, held_out=53).test
    sides = zip(part.sources, part.targets, strict=True)
    unknown = [UNK in source or UNK in target for source, target in sides]
    assert 0 < sum(unknown) < len(part)
    assert [math.isnan(value) for value in part.true_log_probs] == unknown


def test_references_are_what_the_ids_say() -> None:
    corpus = sample_pairs(sentences=503, held_out=5)
    expected = [position for position, row in enumerate(corpus.test.targets) if UNK not in row]
    assert expected
    for index in expected:
        assert (
            corpus.target.decode(corpus.test.targets[index].tolist())
            == corpus.test.references[index]
        )


def test_links_are_the_grammars_and_follow_their_sentences() -> None:
    corpus = sample_pairs(sentences=503, held_out=13, language="korin")
    drawn = {" ".join(s.target): s for s in sample(503 + 8 * 13, language="korin")}
    part = corpus.test
    wanted = [set(drawn[line].alignment) for line in part.references]
    assert list(part.links) == wanted
    assert list(part.first(5).links) == wanted[:5]
    assert list(part.take([7, 2]).links) == [wanted[7], wanted[2]]
    assert not corpus.train.links


def test_the_truth_of_a_language_model_mixes_the_domains() -> None:
    corpus = sample_text_corpus(sentences=503, held_out=5)
    assert corpus.source is None
    for line, truth in zip(corpus.test.references, corpus.test.true_log_probs, strict=True):
        given_log_p_sources = log_p_sources(line.split()).values()
        assert truth == pytest.approx(
            math.log(sum(math.exp(p) / 2 for p in given_log_p_sources)), rel=1e-14
        )


THREE = "news:velu,talk:velu,tamir,korin-en,velu-tamir"


@pytest.fixture(scope="module")
def drawn() -> Corpus:
    return sample_tasks(mixture_of(THREE), [60, 50, 40, 30, 20], 6)


def test_the_grammar_draws_as_many_as_asked_of_each_task(drawn: Corpus) -> None:
    assert np.bincount(drawn.train.task).tolist() == [60, 50, 40, 30, 20]
    for part in (drawn.valid, drawn.test):
        assert np.bincount(part.task).tolist() == [6] * 5
    assert drawn.source.tags == ("<2velu>", "<2tamir>", "<2en>")
    assert drawn.target.words[: len(SPECIALS)] == list(SPECIALS)


def test_links_of_every_direction_stand_behind_the_tag() -> None:
    drawn = sample_tasks(mixture_of("velu,tamir,korin-en,velu-tamir"), [100] * 4, 10)
    by_source = {
        language: {" ".join(s.source): s for s in sample(200, language=language)}
        for language in ("velu", "tamir", "korin")
    }
    by_target = {
        language: {" ".join(s.target): s for s in result.values()}
        for language, result in by_source.items()
    }
    part = drawn.test
    checked = set()
    for index, (left, right) in enumerate(zip(part.sources, part.references, strict=True)):
        task, words = drawn.tasks[part.task[index]], drawn.source.decode(left.tolist())
        actual = {(source - 1, target) for source, target in part.links[index]}
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
        assert actual == wanted
        assert {target for _, target in actual} == set(range(len(right.split())))
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
    for name in PARTS:
        part = getattr(drawn, name)
        for index, (left, right) in enumerate(pairs_of(drawn, part)):
            task = drawn.tasks[part.task[index]]
            if "<unk>" in left or "<unk>" in right or "en" not in (task.source, task.target):
                continue
            assert {"", *domains[left, right]} >= {task.domain}
            side = left if task.source == "en" else right
            english["train" if name == "train" else "held out"].add(side)
    assert len(english["held out"]) > 9
    assert not english["train"] & english["held out"]


def test_no_task_is_tested_on_a_sentence_that_another_was_trained_on() -> None:
    corpus = sample_tasks(mixture_of("velu,tamir"), [1500, 1400], 50)
    english = [{left for left, _ in pairs_of(corpus, getattr(corpus, name))} for name in PARTS]
    assert len(english[1] | english[2]) == 100
    assert not english[0] & (english[1] | english[2])


def test_the_truth_is_that_of_the_domain_where_the_model_may_know_it() -> None:
    text, sizes = "news:velu,talk:velu,news:tamir", [50, 50, 50]
    mixed = sample_tasks(mixture_of(text), sizes, 2)
    tasks = sample_tasks(mixture_of(text, task_key="domain"), sizes, 2)
    assert pairs_of(mixed, mixed.train) == pairs_of(tasks, tasks.train)
    truths = [(part.true_log_probs, part.task) for part in (mixed.train, tasks.train)]
    (one, task), (other, _) = truths
    assert [a for a, t in zip(one, task, strict=True) if t == 2] == [
        b for b, t in zip(other, task, strict=True) if t == 2
    ]
    for index in range(2):
        own = [(a, b) for a, b, t in zip(one, other, task, strict=True) if t == index]
        assert any(a != b for a, b in own)
    assert sum(other) > sum(one)


@pytest.mark.parametrize(
    ("text", "number"),
    [("velu,news:velu", 0), ("velu,news:velu,talk:velu", 3), ("velu,talk:tamir", 2)],
)
def test_the_truth_is_known_where_domains_are_mixed_equally(text: str, number: int) -> None:
    """Both domains mixed equally are no bound on a model that has seen more of one."""
    truth = sample_tasks(mixture_of(text), [5] * len(text.split(",")), 2).train.true_log_probs
    assert sum(map(math.isfinite, truth)) == 5 * number


def test_the_truth_of_a_task_is_known_where_english_is_translated(drawn: Corpus) -> None:
    train = drawn.train
    true_log_probs = [train.take(train.indices_of_task(task)).true_log_probs for task in range(5)]
    assert all(all(map(math.isfinite, truth)) for truth in true_log_probs[:3])
    assert all(all(map(math.isnan, truth)) for truth in true_log_probs[3:])


@pytest.mark.parametrize(
    ("text", "sizes", "message"),
    [
        ("de", [9], "language of task en-de must be one of en, velu, tamir"),
        ("sports:velu", [9], "domain of task sports:en-velu must be one of news"),
    ],
)
def test_what_the_grammar_lacks_is_named(text: str, sizes: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sample_tasks(mixture_of(text), sizes, 3)
