"""Lines that are too long: left out of training, refused elsewhere, named in both cases."""

from __future__ import annotations

import re

import pytest

from latentheads.corpora import Corpus
from latentheads.corpora.multi_task import parallel_tasks
from latentheads.corpora.parallel import PairOptions
from latentheads.corpora.tasks import Mixture, Task
from tests.latentheads.corpora.texts import TEST, TRAIN, pairs_of, pets, story

LONG = "Hund " * 50
SHORT_VALID = [("Der Hund", "The dog")]


def where(part: str, side: str, index: int) -> str:
    return f"{side} {index} of {part}"


@pytest.mark.parametrize("long", [("Ein Hund", LONG), (LONG, "A dog")])
def test_long_training_lines_are_left_out_and_the_first_is_named(long: tuple[str, str]) -> None:
    messages: list[str] = []
    train = [*TRAIN[:3], long, *TRAIN[3:], long]
    corpus = pets(train=train, valid=SHORT_VALID)
    length = int(corpus.train.lengths[3])
    kept_lines = corpus.without_long_lines(20, where, messages.append)
    side = "source" if long[0] == LONG else "target"
    assert messages == [
        "2 of 12 training sentences left out, longer than max_line 20: "
        f"{side} 3 of train has {length} tokens"
    ]
    assert pairs_of(kept_lines, kept_lines.train) == TRAIN
    assert (kept_lines.valid, kept_lines.test) == (corpus.valid, corpus.test)


def test_a_line_may_have_as_many_tokens_as_the_limit_says() -> None:
    corpus = pets(valid=SHORT_VALID)
    longest = max(int(part.lengths.max()) for part in (corpus.train, corpus.valid, corpus.test))
    assert corpus.without_long_lines(longest, where).train is corpus.train
    with pytest.raises(ValueError, match=f"has {longest} tokens, more than max_line {longest - 1}"):
        corpus.without_long_lines(longest - 1, where)
    trained = pets(train=[*TRAIN, (LONG, "A dog")], valid=SHORT_VALID)
    longest = int(trained.train.lengths.max())
    assert trained.without_long_lines(longest, where).train is trained.train


@pytest.mark.parametrize("part", ["valid", "test"])
def test_a_long_held_out_line_is_refused(part: str) -> None:
    parts = {"valid": SHORT_VALID, "test": TEST, part: [*TEST, ("Das Haus", LONG), (LONG, "A")]}
    corpus = pets(**parts)
    length = int(getattr(corpus, part).targets.lengths[1])
    message = (
        f"target 1 of {part} has {length} tokens, more than max_line 20, the first of 2 such "
        "lines: nothing of valid and test is left out"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        corpus.without_long_lines(20, where)


def test_every_reference_of_a_line_counts() -> None:
    corpus = pets(
        valid=SHORT_VALID, test=[*TEST, ("Haus", f"house\t{LONG}\tdog")], multiple_references=True
    )
    assert corpus.test.lengths.max() <= 20
    with pytest.raises(ValueError, match=r"^target 1 of test has "):
        corpus.without_long_lines(20, where)


def test_lines_of_a_running_text_are_counted_too() -> None:
    corpus = story(train=["The dog sleeps .", "The dog " * 20], test=["A dog"])
    kept_lines = corpus.without_long_lines(9, where)
    assert [kept_lines.target.decode(row.tolist()) for row in kept_lines.train.targets] == [
        "The dog sleeps ."
    ]
    with pytest.raises(ValueError, match=r"^target 0 of test has 41 tokens"):
        story(test=["The dog " * 20]).without_long_lines(9, where)


def test_a_corpus_without_a_short_line_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^pets has nothing to train on: source 0 of train has"):
        pets(train=[(LONG, "A dog")] * 2, valid=SHORT_VALID).without_long_lines(20, where)


def test_a_task_without_a_short_line_is_refused() -> None:
    mixture = Mixture((Task("de", "en"), Task("de", "fr")))
    long = {"en": TRAIN, "fr": [(LONG, "chien")] * 2}

    def corpus(train: dict[str, list[tuple[str, str]]]) -> Corpus:
        return parallel_tasks(
            "pets",
            mixture,
            lambda part, task: train[task.target] if part == "train" else TEST,
            PairOptions(vocab_size=300),
        )

    with pytest.raises(ValueError, match=r"^pets has nothing to train on in de-fr: source 10 of"):
        corpus(long).without_long_lines(20, where)
    kept_lines = corpus({"en": TRAIN, "fr": [*TEST, *long["fr"]]}).without_long_lines(20, where)
    assert kept_lines.train.task is not None
    assert kept_lines.train.task.tolist() == [0] * len(TRAIN) + [1]
