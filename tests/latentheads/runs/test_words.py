"""Tokens of words, and of the punctuation around them."""

from __future__ import annotations

import pytest

from latentheads.batch import SPECIALS
from latentheads.corpora import Vocabulary
from latentheads.corpora.characters import Characters
from latentheads.corpora.subwords import Subwords
from latentheads.corpora.text import split_punctuation
from latentheads.corpora.vocabulary import Tagged, Words
from latentheads.runs.words import split_word_ids

LINE = 'He said: "Don\'t you know me?" (€5)'
WORDS = ["He", "said", ":", '"', "Don't", "you", "know", "me", '?"', "(€", "5", ")"]

VOCABULARIES = {
    "bytes": Subwords.train([LINE] * 3, 270),
    "tokenised": Subwords.train([LINE] * 3, len({*LINE}) + len(SPECIALS), tokenised=True),
    "characters": Characters.count([LINE] * 3),
}


def test_punctuation_is_split_off_the_ends_of_words() -> None:
    assert split_punctuation(LINE) == WORDS
    assert split_punctuation(" -- a,b  नमस्ते। ") == ["--", "a,b", "नमस्ते", "।"]
    assert split_punctuation("") == []


@pytest.mark.parametrize("name", VOCABULARIES)
def test_tokens_of_a_word_are_its_text(name: str) -> None:
    vocabulary = VOCABULARIES[name]
    ids = vocabulary.encode(LINE)
    words = split_word_ids(vocabulary, ids, LINE)
    assert len(words) == len(ids) - 1
    assert sorted({word for word in words if word is not None}) == list(range(len(WORDS)))
    for number, text in enumerate(WORDS):
        tokens = [token for token, word in zip(ids, words) if word == number]
        assert vocabulary.decode(tokens).strip() == text


def test_a_token_of_a_word_and_its_punctuation_is_the_word() -> None:
    vocabulary = Words(['"me?"', "a"])
    ids = vocabulary.encode('a "me?" "new!" ?! a')
    assert split_word_ids(vocabulary, ids, 'a "me?" "new!" ?! a') == [0, 2, 5, 7, 8]


def test_unknown_characters_and_tags_move_no_word() -> None:
    plain: Vocabulary = Characters.count(["abc? "] * 3)
    assert split_word_ids(plain, plain.encode("xa? b"), "xa? b") == [0, 0, 1, None, 2]
    words = VOCABULARIES["tokenised"]  # decodes an unknown character as five: the word stays whole
    assert split_word_ids(words, words.encode("m§? me?"), "m§? me?") == [
        *(None, 0, 0, 0),
        *(None, 2, 2, 3),
    ]
    tagged = Tagged(plain, ["<2de>"])
    ids = [tagged.tag("<2de>"), *tagged.encode("a? b")]
    assert split_word_ids(tagged, ids, "a? b") == [None, 0, 1, None, 2]
