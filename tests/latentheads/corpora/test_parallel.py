"""A corpus from pairs of sentences."""

from __future__ import annotations

from typing import Any

import pytest

from latentheads.batch import EOS
from latentheads.corpora import Corpus, Part, batches
from latentheads.corpora.cleaning import Cleaning
from tests.latentheads.corpora.texts import TEST, TRAIN, VALID, pets

DIRTY = [*TRAIN, ("", "empty"), ("Ja ja ja ja", "Yes")]


def text(part: Part, corpus: Corpus) -> list[tuple[str, str]]:
    return [
        (corpus.source.decode(left.tolist()), corpus.target.decode(right.tolist()))
        for left, right in zip(part.sources, part.targets, strict=True)
    ]


def test_every_part_holds_its_pairs() -> None:
    corpus = pets()
    assert corpus.name == "pets"
    for part, pairs in ((corpus.train, TRAIN), (corpus.valid, VALID), (corpus.test, TEST)):
        assert text(part, corpus) == pairs
        assert part.true_log_probs is None
    assert corpus.train.references == ()
    assert corpus.valid.references == ["The DOG ", "", "b"]
    assert next(batches(corpus.valid, 9999)).target.shape[0] == 3


def test_only_training_is_cleaned_and_the_counts_are_told() -> None:
    told: list[str] = []
    corpus = pets(train=DIRTY, cleaning=Cleaning(max_ratio=1.5), log=told.append)
    assert text(corpus.train, corpus) == TRAIN
    assert len(corpus.valid) == len(VALID)
    assert told == [
        "10 of 12 training pairs kept; left out: 1 empty on a side, 0 too long, "
        "1 too unlike in length"
    ]


def test_the_first_of_several_references_is_the_target_of_a_held_out_text_alone() -> None:
    given = [("Hund", "dog\t\thound"), ("Katze", "\tcat")]
    corpus = pets(test=given, train=[*TRAIN, ("Hund", "dog\thound")], multiple_references=True)
    assert corpus.test.alternatives == [["dog", "hound"], ["cat"]]
    assert corpus.test.references == ["dog", "cat"]
    assert text(corpus.test, corpus) == [("Hund", "dog"), ("Katze", "cat")]
    assert text(corpus.train, corpus)[-1] == ("Hund", "dog\thound")
    assert corpus.train.alternatives == ()
    alone = pets(test=given)
    assert (alone.test.references[0], alone.test.alternatives) == ("dog\t\thound", ())


def test_a_long_source_is_cut_in_every_part() -> None:
    whole, cut = pets(), pets(max_source=3)
    for name in ("train", "valid", "test"):
        left, right = getattr(whole, name), getattr(cut, name)
        assert [r.tolist() for r in right.targets] == [r.tolist() for r in left.targets]
        expected = [[*row[:-1][:2].tolist(), EOS] for row in left.sources]
        assert [row.tolist() for row in right.sources] == expected
    assert max(whole.test.sources.lengths) > 3


def test_references_keep_their_case() -> None:
    corpus = pets(lowercase=True)
    assert corpus.valid.references[0] == "The DOG "
    assert text(corpus.valid, corpus)[0] == ("der  hund", "the dog ")


def test_a_joint_vocabulary_is_one_object_that_knows_both_sides() -> None:
    corpus = pets(tokenised=True)
    assert corpus.source is corpus.target
    assert corpus.source.decode(corpus.source.encode("Hund sleeps")) == "Hund sleeps"


def test_separate_vocabularies_know_their_own_side() -> None:
    corpus = pets(joint=False, tokenised=True)
    assert corpus.source is not corpus.target
    assert corpus.source.decode(corpus.source.encode("ä")) == "ä"
    assert corpus.target.decode(corpus.target.encode("ä")) == "<unk>"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train": [("", "a")]}, "pets has nothing to train on: 0 of 1 training pairs kept"),
        ({"valid": []}, "pets has no pair in valid"),
        ({"test": iter([])}, "pets has no pair in test"),
        ({"test": [("a", ""), ("b", " ")]}, "pets has no word in the targets of test"),
        ({"vocab_size": 3}, "vocab_size must be at least 260"),
    ],
)
def test_what_makes_no_corpus_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pets(**options)
