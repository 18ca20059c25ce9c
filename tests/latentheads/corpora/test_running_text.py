"""A running text as a corpus: what is counted, what is cut, what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from latentheads.batch import EOS, UNK
from latentheads.corpora import Words, batches, text_corpus
from latentheads.corpora.subwords import Subwords
from latentheads.corpora.units import WordUnit
from latentheads.corpora.vocabulary import vocabulary_from_json
from tests.latentheads.corpora.texts import STORY, story

PARTS = ("train", "valid", "test")
WORDS = {part: sum(len(line.split()) + 1 for line in lines) for part, lines in STORY.items()}


@pytest.mark.parametrize("block", [0, 1, 3, 99])
def test_words_are_tokens_and_every_line_ends(block: int) -> None:
    corpus = story(block_size=block)
    assert isinstance(corpus.target, Words)
    assert corpus.source is None
    for name, lines in STORY.items():
        part = getattr(corpus, name)
        encoded = [index for line in lines for index in corpus.target.encode(line)]
        assert part.targets.tokens.tolist() == encoded
        assert part.tokens == part.words == WORDS[name] == len(encoded)
        assert (part.targets.tokens == EOS).sum() == len(lines)
        assert part.take([0]).words is None  # those of a piece are not counted
        assert (part.block_size, part.unit) == (block, "blocks" if block else "sentences")
        assert (part.sources, part.references, part.true_log_probs) == (None, (), None)


@pytest.mark.parametrize("unit", ["word", "subword"])
def test_without_a_block_every_line_stands_alone(unit: Any) -> None:
    corpus = story(unit=unit)
    for name, lines in STORY.items():
        part = getattr(corpus, name)
        assert [row.tolist() for row in part.targets] == [corpus.target.encode(x) for x in lines]
    batch = next(batches(corpus.train, 99, shuffle=False))
    assert batch.before is None


@pytest.mark.parametrize("unit", ["word", "subword"])
@pytest.mark.parametrize("block", [1, 5, 99])
def test_blocks_run_across_lines_and_leave_nothing_out(unit: Any, block: int) -> None:
    whole, cut = story(unit=unit), story(unit=unit, block_size=block)
    for name in PARTS:
        part, text = getattr(cut, name).targets, getattr(whole, name).targets.tokens
        assert np.concatenate(list(part)).tolist() == text.tolist()
        assert set(part.lengths[:-1].tolist()) <= {block}
        assert 1 <= part.lengths[-1] <= block


def test_subwords_are_told_from_the_words_they_spell() -> None:
    corpus = story(unit="subword", block_size=4)
    assert isinstance(corpus.target, Subwords)
    for name, lines in STORY.items():
        part = getattr(corpus, name)
        assert part.words == WORDS[name]
        assert part.tokens > part.words
        assert part.tokens == sum(len(corpus.target.encode(line)) for line in lines)
        ends = (part.targets.tokens == EOS).nonzero()[0] + 1
        stretches = np.split(part.targets.tokens, ends)[:-1]
        assert [corpus.target.decode(s.tolist()) for s in stretches] == lines


@pytest.mark.parametrize("unit", ["word", "subword"])
def test_lowercase_makes_no_difference_of_case(unit: Any) -> None:
    """Neither in the text nor in a prompt, which the vocabulary alone prepares."""
    lower = {part: [line.lower() for line in lines] for part, lines in STORY.items()}
    ours, theirs = story(unit=unit, lowercase=True), story(unit=unit, **lower)
    assert ours.target.to_json() == {**theirs.target.to_json(), "lowercase": True}
    again = vocabulary_from_json(ours.target.to_json())
    assert ours.target.encode("The DOG") == again.encode("The DOG") == again.encode("the dog")
    assert not theirs.target.lowercase
    for part in PARTS:
        mine, other = getattr(ours, part), getattr(theirs, part)
        assert mine.targets.tokens.tolist() == other.targets.tokens.tolist()
        assert mine.words == other.words


def test_a_text_of_unknown_words_is_told_in_plain_numbers() -> None:
    lines: list[str] = []
    text_corpus("mine", lambda: ["b"], lambda: ["a " * 999], lambda: ["b"], log=lines.append)
    assert lines[0].endswith(" 0 / 99.9 / 0 % unknown")


def test_rare_and_unseen_words_are_unknown_and_their_share_is_told() -> None:
    lines: list[str] = []
    corpus = story(unit=WordUnit(min_count=2), log=lines.append)
    assert sorted(corpus.target.words[4:]) == [".", "The", "dog"]
    shares = [100 * float((getattr(corpus, part).targets.tokens == UNK).mean()) for part in PARTS]
    tokens = " / ".join(f"{WORDS[part]:,}" for part in PARTS)
    unknown = " / ".join(f"{share:.3g}" for share in shares)
    assert lines == [f"{tokens} tokens, vocabulary size 7, {unknown} % unknown"]
    assert shares[0] > 0


@pytest.mark.parametrize("unit", ["word", "subword"])
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("lines", [[], ["", "  \u2028"]])
def test_a_part_without_a_word_is_refused(unit: Any, part: str, lines: list[str]) -> None:
    with pytest.raises(ValueError, match=f"^story has no word in {part}$"):
        story(unit=unit, **{part: lines})


def test_words_are_read_once_and_subwords_once_more() -> None:
    for unit, times in (("word", 1), ("subword", 2)):
        read: list[str] = []

        def train(read: list[str] = read) -> Iterator[str]:
            read.append("train")
            yield from STORY["train"]

        corpus = story(unit=unit, train=train)
        assert len(read) == times
        assert corpus.train.words == WORDS["train"]
