"""Corpora as models see them."""

from dataclasses import replace

import numpy as np
import pytest

from latentheads import corpora
from latentheads.corpora.from_grammar import sample_pairs
from tests.latentheads.corpora.texts import mixed_pets, pets
from tests.typechecking import unchecked


def test_the_first_sentences_keep_all_that_is_known_of_them() -> None:
    """A running text keeps what stands before them; else they are those that are taken."""
    test = [(f"{index}", f"one {index}\tother {index}") for index in range(5)]
    part = pets(test=test, multiple_references=True).test
    some, taken = part.first(3), part.take(range(3))
    assert some.alternatives == taken.alternatives == [right.split("\t") for _, right in test[:3]]
    for name in ("references", "true_log_probs", "links", "words", "block_size"):
        assert getattr(some, name) == getattr(taken, name)
    assert some.tokens == taken.tokens < part.tokens
    assert repr(some) == repr(taken)
    mask = [True, False, False, True, False]
    for indices in (mask, np.array(mask), np.array([0, 3]), [-5, -2]):
        assert part.take(indices).alternatives == [["one 0", "other 0"], ["one 3", "other 3"]]
        tags = replace(part, tags=np.arange(5, dtype=np.int32)).take(indices).tags
        assert tags is not None
        assert tags.tolist() == [0, 3]
    assert len(part.take([])) == 0


def test_the_first_sentences_of_several_tasks_are_of_each() -> None:
    part = mixed_pets("de,fr,bible:fr").train
    assert part.task is not None
    number = len(part) // 2
    some = part.first(number)
    assert some.task is not None
    assert set(some.task.tolist()) == {0, 1, 2}
    rows = [part.targets[n * len(part) // number].tolist() for n in range(number)]
    assert [row.tolist() for row in some.targets] == rows


def test_what_the_package_gives_is_no_module() -> None:
    for name in corpora.__all__:
        assert callable(getattr(corpora, name)), f"{name} is a module"


def test_a_corpus_is_shown_in_one_line() -> None:
    made = sample_pairs(sentences=2000, held_out=30)
    tokens = [f"{part.tokens:,}" for part in (made.train, made.valid, made.test)]
    assert repr(made) == (
        f"Corpus('grammar-velu', train=Part(2,000 sentences, {tokens[0]} target tokens), "
        f"valid=Part(30 sentences, {tokens[1]} target tokens), "
        f"test=Part(30 sentences, {tokens[2]} target tokens), "
        f"target=Words(vocab_size={len(made.target)}), "
        f"source=Words(vocab_size={len(made.source)}), "
        "overlap=Overlap(valid=0, test=0))"
    )
    assert repr(made.test.targets) == f"Rows(30 rows, {tokens[2]} tokens)"


def test_a_part_is_not_its_name_and_has_no_negative_number_of_sentences() -> None:
    corpus = sample_pairs(sentences=20, held_out=3)
    with pytest.raises(ValueError, match=r"^part must be one of a corpus, .*, got 'test'$"):
        unchecked(corpora.Corpus.source_texts)(corpus, "test")
    with pytest.raises(ValueError, match=r"^number must be at least 0, got -1$"):
        corpus.test.first(-1)
