"""Characters: every text comes back, composed."""

from __future__ import annotations

from latentheads.batch import BOS, EOS, PAD, UNK
from latentheads.corpora.characters import Characters
from latentheads.corpora.vocabulary import vocabulary_from_json

KNOWN = Characters.count(["aab b", "aé"])


def test_characters_are_counted_and_come_back() -> None:
    assert KNOWN.characters == ("a", "b", " ", "é")
    assert len(KNOWN) == 8
    assert KNOWN.decode(KNOWN.encode("ba e\u0301")) == "ba é"
    assert KNOWN.encode("ax") == [4, UNK, EOS]
    assert KNOWN.decode([4, UNK, EOS, 5]) == "a\N{REPLACEMENT CHARACTER}"


def test_characters_belong_to_words() -> None:
    assert KNOWN.word_ids(KNOWN.encode(" ab  axb ")) == [None, 0, 0, None, None, 1, 1, 1, None]


def test_tokens_that_are_not_written_separate_no_words() -> None:
    ids = [BOS, *KNOWN.encode("a")[:1], PAD, *KNOWN.encode("b a")]
    assert KNOWN.decode(ids) == "ab a"
    assert KNOWN.word_ids(ids) == [None, 0, None, 0, None, 1]


def test_unknown_white_space_separates_words() -> None:
    ids = KNOWN.encode("a\u00a0b\tx")
    assert KNOWN.decode(ids) == "a b \N{REPLACEMENT CHARACTER}"
    assert KNOWN.word_ids(ids) == [0, None, 1, None, 2]


def test_lower_case_is_part_of_the_vocabulary() -> None:
    low = Characters.count(["AB"], lowercase=True)
    again = vocabulary_from_json(low.to_json())
    assert again.decode(again.encode("aB")) == "ab"
    assert again.to_json() == low.to_json()
