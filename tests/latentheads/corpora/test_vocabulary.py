"""Words: what is collected, how it is numbered, and what it costs."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterator
from pkgutil import resolve_name

import numpy as np
import pytest
import torch

from latentheads.batch import EOS, PAD, UNK
from latentheads.corpora import Words
from latentheads.corpora.characters import Characters
from latentheads.corpora.subwords import Subwords
from latentheads.corpora.vocabulary import KINDS, Tagged, Vocabulary, vocabulary_from_json

TEXT = [
    "b a b",
    "",
    " c\u2028a\xa0b\x85d\te\u3000f ",
    "<unk> a <eos> <pad> <pad>",
    "<bos> naïve <unk> nai\u0308ve",
    "   ",
]


def test_types_are_ordered_by_frequency_and_letters_and_the_rare_are_unknown() -> None:
    words = Words.count(["d b a b", "c a b d"], minimum=2)
    assert words.words[4:] == ["b", "a", "d"]
    assert words.encode("b c") == [4, UNK, EOS]
    assert words.decode([5, 4, EOS, 5]) == "a b"
    assert len(words) == 7


@pytest.mark.parametrize("minimum", [1, 2, 3, 9])
def test_learning_is_counting_and_encoding_in_one_reading(minimum: int) -> None:
    counted = Words.count(TEXT, minimum)
    learned, rows = Words.learn(iter(TEXT), minimum)
    encoded = counted.encode_all(iter(TEXT))
    assert learned.words == counted.words
    assert [row.tolist() for row in rows] == [row.tolist() for row in encoded]
    assert [row.tolist() for row in rows] == [counted.encode(line) for line in TEXT]
    assert rows.tokens.dtype == encoded.tokens.dtype == np.int32
    assert rows.ends.dtype == np.int64


def test_what_is_learned_is_decoded_again() -> None:
    words, rows = Words.learn(TEXT)
    assert [words.decode(row.tolist()) for row in rows] == [" ".join(x.split()) for x in TEXT]


@pytest.mark.parametrize(
    "vocabulary",
    [
        Words.count(TEXT),
        Tagged(Words.count(TEXT), ["<2de>"]),
        Characters.count(TEXT),
        Subwords.train(TEXT, 300),
        Subwords.train(TEXT, 300, tokenised=True),
    ],
)
def test_ids_of_numpy_and_torch_end_at_eos_too(vocabulary: Vocabulary) -> None:
    ids = [*vocabulary.encode("b a b"), PAD]
    for given in (np.array(ids, np.int32), torch.tensor(ids)):
        assert vocabulary.decode(given) == "b a b"
        assert vocabulary.word_ids(given) == vocabulary.word_ids(ids)


def test_a_tag_is_its_own_text() -> None:
    tagged = Tagged(Words(["a"]), ["<2de>", "<2fr>"])
    assert [tagged.token_text(token) for token in (4, 5, 6)] == ["a", "<2de>", "<2fr>"]


@pytest.mark.parametrize("minimum", [1, 2])
def test_the_text_of_a_special_token_is_a_word_and_only_unk_is_special(minimum: int) -> None:
    words, rows = Words.learn(TEXT, minimum)
    assert "<unk>" not in words.words[4:]
    assert ("<eos>" in words.words[4:]) == (minimum == 1)
    kinds = rows[3]
    assert kinds[0] == UNK
    assert kinds[3] == kinds[4] > UNK
    assert (rows.tokens == EOS).sum() == len(TEXT)
    assert not (rows.tokens == PAD).any()
    unseen = Words.count(["a"])
    assert unseen.encode("<pad> <bos> <eos> <unk> a") == [UNK] * 4 + [4, EOS]


def test_nothing_to_read_makes_an_empty_vocabulary() -> None:
    words, rows = Words.learn([])
    assert (len(words), len(rows), len(rows.tokens)) == (4, 0, 0)


def test_a_file_of_words_may_leave_out_their_case() -> None:
    plain, lower = Words(["a"]), Words(["a"], lowercase=True)
    assert plain.to_json() == {"kind": "words", "words": ["a"]}
    assert [vocabulary_from_json(item.to_json()).lowercase for item in (plain, lower)] == [0, 1]
    assert (plain.encode("A"), lower.encode("A")) == ([UNK, EOS], [4, EOS])


def text(lines: int, width: int) -> Iterator[str]:
    """Lines of words of 499 types, made while they are read."""
    places = itertools.cycle(range(499))
    for _ in range(lines):
        yield " ".join(f"word{index}" for index in itertools.islice(places, width))


def test_a_token_costs_a_few_bytes_and_no_object() -> None:
    """A list of Python numbers would take 8 for each, and 28 more for those above 256."""
    tokens = 1_000 * 100
    tracemalloc.start()
    try:
        words, rows = Words.learn(text(1_000, 99))
        learning = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        again = words.encode_all(text(1_000, 99))
        encoding = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert np.array_equal(rows.tokens, again.tokens)
    assert len(rows.tokens) == tokens
    assert rows.tokens.nbytes == 4 * tokens
    assert learning < 16 * tokens
    assert encoding < 12 * tokens


def test_every_kind_in_the_table_is_that_of_its_class() -> None:
    for kind, path in KINDS.items():
        vocabulary = resolve_name(path)
        assert issubclass(vocabulary, Vocabulary)
        assert vocabulary.kind == kind
