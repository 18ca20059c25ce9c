"""A corpus from pairs of sentences."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from torch.utils.data import Dataset

from latentheads.batch import EOS
from latentheads.corpora import Corpus, batches
from latentheads.corpora.cleaning import Cleaning
from tests.latentheads.corpora.texts import TEST, TRAIN, VALID, mixed_pets, pairs_of, pets
from tests.terminal import showing_progress
from tests.typechecking import unchecked

DIRTY = [*TRAIN, ("", "empty"), ("Ja ja ja ja", "Yes")]


def test_every_part_holds_its_pairs() -> None:
    corpus = pets()
    assert corpus.name == "pets"
    for part, pairs in ((corpus.train, TRAIN), (corpus.valid, VALID), (corpus.test, TEST)):
        assert pairs_of(corpus, part) == pairs
        assert part.true_log_probs is None
    assert corpus.train.references == ()
    assert corpus.valid.references == ["The DOG ", "", "b"]
    assert next(batches(corpus.valid, 9999, shuffle=False)).target.shape[0] == 3


def test_only_training_is_cleaned_and_the_counts_are_told() -> None:
    lines: list[str] = []
    corpus = pets(train=DIRTY, cleaning=Cleaning(max_ratio=1.5), log=lines.append)
    assert pairs_of(corpus, corpus.train) == TRAIN
    assert len(corpus.valid) == len(VALID)
    assert lines == [
        "10 of 12 training pairs kept; left out: 1 empty on a side, 0 too long, "
        "1 too unlike in length"
    ]


def test_the_first_of_several_references_is_the_target_of_a_held_out_text_alone() -> None:
    given = [("Hund", "dog\t\thound"), ("Katze", "\tcat")]
    corpus = pets(test=given, train=[*TRAIN, ("Hund", "dog\thound")], multiple_references=True)
    assert corpus.test.alternatives == [["dog", "hound"], ["cat"]]
    assert corpus.test.references == ["dog", "cat"]
    assert pairs_of(corpus, corpus.test) == [("Hund", "dog"), ("Katze", "cat")]
    assert pairs_of(corpus, corpus.train)[-1] == ("Hund", "dog\thound")
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
    assert pairs_of(corpus, corpus.valid)[0] == ("der  hund", "the dog ")


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
        ({"valid": []}, "pets has no word in the targets of valid"),
        ({"test": iter([])}, "pets has no word in the targets of test"),
        ({"test": [("a", ""), ("b", " ")]}, "pets has no word in the targets of test"),
        ({"vocab_size": 3}, "vocab_size must be at least 260"),
    ],
)
def test_what_makes_no_corpus_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pets(**options)


class Mapped(Dataset[Any]):
    """Pairs by their index, without an end: it raises no IndexError."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self.pairs = pairs

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> list[str]:
        return list(self.pairs[index % len(self.pairs)])


@pytest.mark.parametrize("make", [list, iter, Mapped, lambda x: dict(enumerate(x)).values()])
def test_a_corpus_of_ones_own_pairs(make: Callable[[Any], Any]) -> None:
    kept: list[str] = []
    parts = (make(pairs) for pairs in (DIRTY, VALID, TEST))
    corpus = Corpus.from_pairs(*parts, vocab_size=300, max_ratio=1.5, log=kept.append)
    assert pairs_of(corpus, corpus.train) == TRAIN
    assert pairs_of(corpus, corpus.valid) == VALID
    assert corpus.test.references == ["The house"]
    assert corpus.source is corpus.target
    assert kept[0].startswith("10 of 12 training pairs kept")
    apart = Corpus.from_pairs(TRAIN, VALID, TEST, vocab_size=300, joint=False, name="animals")
    assert apart.source is not apart.target
    assert apart.name == "animals"
    lines: list[str] = []
    long = ("the house", "x" * 33 * 700)  # subwords would be learned from the whole of the word
    Corpus.from_pairs([*TRAIN, long], VALID, TEST, vocab_size=300, max_line=700, log=lines.append)
    assert "1 too long" in lines[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": "train.de"}, r"train must be pairs of texts \(source, target\), got 'train.de'"),
        ({"valid": 3}, r"valid must be pairs of texts \(source, target\), got 3"),
        ({"train": [("a", "b"), "cd"]}, r"train\[1\] must be a pair of texts .*, got 'cd'"),
        ({"test": [{"de": "a"}]}, r"test\[0\] must be a pair of texts .*, got "),
        ({"test": [("a", None)]}, r"test\[0\] must be a pair of texts .*, got "),
        ({"train": []}, "pairs has nothing to train on"),
        ({"valid": []}, "pairs has no word in the targets of valid"),
        ({"max_line": -1}, "max_line must be at least 0, got -1"),
        ({"vocab_size": -5}, "vocab_size must be at least 1, got -5"),
        ({"max_line": 3}, "the source of pair 0 of valid has .* tokens, more than max_line 3"),
    ],
)
def test_what_is_no_corpus_of_pairs(changes: dict[str, Any], message: str) -> None:
    options = {"train": TRAIN, "valid": [("Der Hund da", "The dog")], "test": TEST}
    with pytest.raises(ValueError, match=f"^{message}"):
        unchecked(Corpus.from_pairs)(**{**options, "vocab_size": 300, **changes})


@pytest.mark.parametrize(
    ("make", "learned", "encoded"),
    [
        (pets, 2 * len(TRAIN), len(TRAIN)),
        (partial(pets, joint=False), len(TRAIN), len(TRAIN)),
        (partial(mixed_pets, "de,fr"), 150, 75),
    ],
)
def test_a_terminal_shows_how_many_lines_are_learned_from_and_encoded(
    make: Callable[[], Corpus], learned: int, encoded: int
) -> None:
    with showing_progress() as stream:
        make()
    shown = re.findall(r"([a-z ]+): +0%.*?/(\d+) ", stream.getvalue())
    assert ("learning subwords", str(learned)) in shown
    assert shown.count(("encoding", str(encoded))) == 2  # a bar for each side, of all tasks
