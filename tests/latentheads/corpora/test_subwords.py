"""Subwords: exact round trips, the same vocabulary every time, nothing but JSON on disk."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentheads.batch import EOS, SPECIALS, UNK
from latentheads.corpora import Words, subwords
from latentheads.corpora.grammar import sample
from latentheads.corpora.subwords import Subwords
from latentheads.corpora.vocabulary import Tagged, vocabulary_from_json

LINES = [" ".join(sentence.source) for sentence in sample(50, seed=1)] * 3
HOSTILE = ["<eos> the<eos> <pad> x<pad>x", "a<unk> <unk> <bos> ", "</w> Ġ ▁ ##a @@ b@@"] * 4

RAW = Subwords.train([*LINES, *HOSTILE], 400)
TOKENISED = Subwords.train(LINES, 200, tokenised=True)
BOTH = pytest.mark.parametrize("tokenised", [False, True])

CHARACTER = st.one_of(st.integers(0, 0xFF), st.integers(0, 0x10F7FF))
TEXT = st.lists(CHARACTER.map(lambda n: chr(n if n < 0xD800 else n + 0x800))).map("".join)
"""Any text: ``st.text()`` looks at every character of Unicode first, which takes seconds."""

AWKWARD = ["", " ", "  two  spaces ", "\ttab\t", "e\u0301 é ﬁ İ", "a\nb\r\n", "Ġ Ċ ▁"]
AWKWARD += ["\U0001f469\u200d\U0001f469 \u0085 \u2028 \u00a0", "\x00\x7f\uffff"]
AWKWARD += ["<pad> <bos> <eos><unk>  </w>"]


@given(TEXT)
def test_raw_text_comes_back_exactly(line: str) -> None:
    ids = RAW.encode(line)
    assert RAW.decode(ids) == line
    assert UNK not in ids
    assert ids.index(EOS) == len(ids) - 1


@given(st.text(sorted(set("".join(LINES)))))
def test_tokenised_text_of_known_characters_comes_back_exactly(line: str) -> None:
    ids = TOKENISED.encode(line)
    assert TOKENISED.decode(ids) == line
    assert min(ids) == EOS
    assert UNK not in ids


@BOTH
def test_the_text_of_a_special_token_is_text(tokenised: bool) -> None:
    vocabulary = Subwords.train(HOSTILE, 400, tokenised=tokenised)
    for line in HOSTILE:
        ids = vocabulary.encode(line)
        assert vocabulary.decode(ids) == line
        assert min(ids[:-1]) >= len(SPECIALS)
    same = vocabulary_from_json(vocabulary.to_json())
    assert same.encode(HOSTILE[0]) == vocabulary.encode(HOSTILE[0])


def test_the_first_word_is_like_any_other() -> None:
    word = TOKENISED.encode("the")[:-1]
    assert TOKENISED.encode("the the") == [*word, *word, EOS]


@BOTH
def test_a_line_without_text_is_its_end_alone(tokenised: bool) -> None:
    vocabulary = TOKENISED if tokenised else RAW
    assert vocabulary.encode("") == [EOS]
    assert [row.tolist() for row in vocabulary.encode_all(["", ""])] == [[EOS], [EOS]]


def test_subwords_do_not_cross_words() -> None:
    assert all(b" " not in piece[1:] for piece in TOKENISED._token_bytes[len(SPECIALS) :])


def test_unknown_characters_are_unknown_and_nothing_else_is() -> None:
    line = "the ქ dog\u00a0s töö"
    ids = TOKENISED.encode(line)
    assert ids.count(UNK) == 4
    assert TOKENISED.decode(ids) == "the <unk> dog<unk>s t<unk><unk>"


def test_unicode_spaces_are_no_boundary_of_tokenised_words() -> None:
    lines = ["a\u00a0b\u0085c\u2028d\te"] * 2
    vocabulary = Subwords.train(lines, 40, tokenised=True)
    ids = vocabulary.encode(lines[0])
    assert len(ids) == 2
    assert vocabulary.decode(ids) == lines[0]


def assert_words(vocabulary: Subwords, ids: list[int], words: list[str]) -> None:
    """The tokens of each word spell it."""
    places = vocabulary.word_ids(ids)
    assert len(places) == ids.index(EOS)
    pieces = [(index, vocabulary._token_bytes[token]) for index, token in zip(places, ids)]
    spelled = [b"".join(b for p, b in pieces if p == n).decode() for n in range(len(words))]
    assert [word.strip() for word in spelled] == words
    assert {index for index in places if index is not None} == set(range(len(words)))


@given(TEXT)
def test_tokens_of_raw_text_know_their_word(line: str) -> None:
    assert_words(RAW, RAW.encode(line), line.split())


@pytest.mark.parametrize("line", [*LINES[:3], "  two  spaces ", ""])
def test_tokens_of_tokenised_text_know_their_word(line: str) -> None:
    assert_words(TOKENISED, TOKENISED.encode(line), line.split())


def test_a_broken_character_is_part_of_its_word() -> None:
    euro = [RAW._token_bytes.index(bytes([byte])) for byte in "€".encode()]
    a, space = (RAW._token_bytes.index(text) for text in (b"a", b" "))
    assert RAW.word_ids([a, *euro[:2], space, *euro, EOS, a]) == [0, 0, 0, 0, 1, 1, 1]
    assert RAW.word_ids([a, euro[0]]) == [0, 0]
    assert RAW.word_ids([a, space, *euro[:2]]) == [0, None, 1, 1]


def test_tags_are_no_words() -> None:
    for plain in (RAW, Words(["a", "b"])):
        tagged = Tagged(plain, ["<2de>"])
        ids = plain.encode("a b a")
        own = plain.word_ids(ids)
        assert tagged.word_ids([tagged.tag("<2de>"), *ids]) == [None, *own]
        assert own == [0, 1, 2]


@BOTH
def test_lower_casing_is_that_of_python(tokenised: bool) -> None:
    line = "Über DIE Straße ΟΔΟΣ"
    vocabulary = Subwords.train([line, line], 300, lowercase=True, tokenised=tokenised)
    assert vocabulary.decode(vocabulary.encode(line)) == line.lower()


@BOTH
def test_same_lines_give_the_same_vocabulary(tokenised: bool) -> None:
    first, second = (Subwords.train(LINES, 350, tokenised=tokenised) for _ in range(2))
    assert json.dumps(first.to_json()) == json.dumps(second.to_json())


def test_training_reads_a_stream_and_stops_where_nothing_repeats() -> None:
    def stream() -> Iterator[str]:
        yield from ("ab ab", "cd")

    assert len(Subwords.train(stream(), 1000, tokenised=True)) == len(SPECIALS) + 5 + 2
    assert len(Subwords.train(stream(), 262)) == 262


@pytest.mark.parametrize("chunk", [1, 7, 10_000])
def test_all_lines_are_encoded_as_each(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(subwords, "CHUNK", chunk)
    rows = RAW.encode_all(line for line in AWKWARD)
    assert [row.tolist() for row in rows] == [RAW.encode(line) for line in AWKWARD]
    assert [RAW.decode(row.tolist()) for row in rows] == AWKWARD
    assert (rows.tokens.dtype, rows.ends.dtype) == (np.int32, np.int64)
    assert len(RAW.encode_all([])) == 0


def test_decoding_stops_at_the_end_and_survives_any_ids() -> None:
    ids = RAW.encode("the dog")
    assert RAW.decode([*ids, *ids]) == "the dog"
    assert RAW.decode([0, 1, UNK]) == "<pad><bos><unk>"
    assert "\ufffd" in RAW.decode(range(len(SPECIALS), len(RAW)))


@pytest.mark.parametrize("vocabulary", [RAW, TOKENISED, Words(["a", "b"])])
def test_a_vocabulary_is_made_again_from_its_json(vocabulary: Any) -> None:
    again = vocabulary_from_json(json.loads(json.dumps(vocabulary.to_json())))
    assert type(again) is type(vocabulary)
    assert again.to_json() == vocabulary.to_json()
    assert len(again) == len(vocabulary)
    assert again.encode("a b the dogs") == vocabulary.encode("a b the dogs")


FRESH = {"kind": "bpe", "lowercase": False, "tokenised": False}
KINDS = "kind must be one of words, bpe, tagged, characters, positions; got"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (["the"], "a vocabulary is a JSON object, got list"),
        ({}, f"{KINDS} None"),
        ({"kind": "pickle"}, f"{KINDS} 'pickle'"),
        ({**FRESH, "tokenizer": {}}, "the tokenizer of a vocabulary is malformed"),
    ],
)
def test_malformed_json_is_refused_in_one_line(value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        vocabulary_from_json(value)
    assert "\n" not in str(caught.value)


def test_unicode_forms_are_different_tokens() -> None:
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    subwords = Subwords.train([composed] * 4, 300)
    assert subwords.encode(composed) != subwords.encode(decomposed)
    assert subwords.decode(subwords.encode(decomposed)[:-1]) == decomposed


def test_a_size_below_the_characters_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 260, 4 special tokens and 256 bytes; got 259"):
        Subwords.train(["a"], 259)
    with pytest.raises(ValueError, match="at least 7, 4 special tokens and 3 characters; got 6"):
        Subwords.train(["a b"], 6, tokenised=True)


def test_half_a_character_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^a text must be UTF-8, got 'a \\udcff'$"):
        RAW.encode_all(["a", "a \udcff"])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_encodes_too(capfd: pytest.CaptureFixture[str]) -> None:
    expected = RAW.encode_all(LINES).tokens.tolist()
    child = os.fork()
    if not child:
        os._exit(RAW.encode_all(LINES).tokens.tolist() != expected)
    assert os.waitpid(child, 0)[1] == 0
    assert capfd.readouterr().err == ""


def test_ctrl_c_ends_the_learning_of_subwords_before_the_last_line() -> None:
    lines = 0

    def read() -> Iterator[str]:
        nonlocal lines
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(2_000):
            lines += 1
            time.sleep(0.002)
            yield "a line"

    with pytest.raises(KeyboardInterrupt):
        Subwords.train(read(), 400)
    assert lines < 2_000


def test_an_error_of_the_lines_is_that_of_the_learning() -> None:
    with pytest.raises(ZeroDivisionError):
        Subwords.train((str(1 // number) for number in (1, 0)), 400)
