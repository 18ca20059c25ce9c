"""Corpora as models see them."""

import math
from typing import Any

import pytest

import latentheads as lh
from latentheads import corpora
from latentheads.batch import UNK
from latentheads.corpora.corpus import draw_pairs, draw_text
from latentheads.corpora.grammar import log_p_sources, sample
from tests.latentheads.corpora.texts import pets


def test_no_held_out_source_occurs_in_training() -> None:
    corpus = draw_pairs(sentences=501, held_out=53)
    seen = {tuple(row) for row in corpus.train.sources}
    held_out = [tuple(row) for part in (corpus.valid, corpus.test) for row in part.sources]
    assert len(corpus.valid) == len(corpus.test) == 53
    assert len(set(held_out)) == len(held_out) == 106
    assert not seen & set(held_out)


def test_truth_is_a_log_probability_of_each_sentence() -> None:
    corpus = draw_pairs(sentences=2003, held_out=53)
    for part in (corpus.train, corpus.valid, corpus.test):
        assert len(part.truth) == len(part)
        assert all(value <= 0 for value in part.truth)


def test_the_truth_of_a_sentence_with_an_unknown_word_is_not_known() -> None:
    part = draw_pairs(sentences=503, held_out=53).test
    sides = zip(part.sources, part.targets, strict=True)
    unknown = [UNK in source or UNK in target for source, target in sides]
    assert 0 < sum(unknown) < len(part)
    assert [math.isnan(value) for value in part.truth] == unknown


def test_references_are_what_the_ids_say() -> None:
    corpus = draw_pairs(sentences=2003, held_out=5)
    known = [place for place, row in enumerate(corpus.test.targets) if UNK not in row]
    assert known
    for place in known:
        assert (
            corpus.target.decode(corpus.test.targets[place].tolist())
            == corpus.test.references[place]
        )


def test_links_are_the_grammars_and_follow_their_sentences() -> None:
    corpus = draw_pairs(sentences=503, held_out=13, language="korin")
    drawn = {" ".join(s.target): s for s in sample(503 + 8 * 13, language="korin")}
    part = corpus.test
    wanted = [set(drawn[line].alignment) for line in part.references]
    assert list(part.links) == wanted
    assert list(part.first(5).links) == wanted[:5]
    assert list(part.take([7, 2]).links) == [wanted[7], wanted[2]]
    assert not corpus.train.links


def test_the_truth_of_a_language_model_mixes_the_domains() -> None:
    corpus = draw_text(sentences=2003, held_out=5)
    assert corpus.source is None
    for line, truth in zip(corpus.test.references, corpus.test.truth, strict=True):
        known = log_p_sources(line.split()).values()
        assert truth == pytest.approx(math.log(sum(math.exp(p) / 2 for p in known)), rel=1e-14)


def test_the_first_sentences_keep_all_that_is_known_of_them() -> None:
    """A running text keeps what stands before them; else they are those that are taken."""
    test = [(f"{place}", f"one {place}\tother {place}") for place in range(5)]
    part = pets(test=test, several=True).test
    some, taken = part.first(3), part.take(range(3))
    assert some.alternatives == taken.alternatives == [right.split("\t") for _, right in test[:3]]
    for name in ("references", "truth", "links", "words", "block"):
        assert getattr(some, name) == getattr(taken, name)


def test_an_empty_corpus_is_refused() -> None:
    with pytest.raises(ValueError, match="must be positive"):
        draw_pairs(sentences=0)


def test_what_the_package_gives_is_no_module() -> None:
    for name in corpora.__all__:
        assert callable(getattr(corpora, name)), f"{name} is a module"


def test_a_corpus_is_shown_in_one_line() -> None:
    made = draw_pairs(sentences=2000, held_out=30)
    tokens = [f"{part.tokens:,}" for part in (made.train, made.valid, made.test)]
    assert repr(made) == (
        f"Corpus('grammar-velu', train=Part(2,000 sentences, {tokens[0]} target tokens), "
        f"valid=Part(30 sentences, {tokens[1]} target tokens), "
        f"test=Part(30 sentences, {tokens[2]} target tokens), "
        f"target=Words({len(made.target)} types), source=Words({len(made.source)} types), "
        "overlap=Overlap(valid=0, test=0))"
    )
    assert repr(made.test.targets) == f"Rows(30 rows, {tokens[2]} tokens)"


@pytest.mark.parametrize("task", ["translation", "language-model"])
def test_the_options_of_the_grammar_know_what_its_corpus_is_called(task: Any) -> None:
    data = lh.Data(task=task, language="tamir", sentences=9, held_out=2)
    assert data.name == lh.make_corpus(data).name
