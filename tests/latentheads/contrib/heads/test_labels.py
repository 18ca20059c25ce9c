"""What stands at queries and keys, in words."""

from __future__ import annotations

import pytest

from latentheads.batch import EOS, Batch
from latentheads.contrib.heads.labels import name_queries_and_keys, name_tokens
from latentheads.corpora.characters import Characters
from latentheads.corpora.subwords import Subwords
from latentheads.corpora.vocabulary import Tagged, Words

SOURCE, TARGET = Tagged(Words(["a", "b"]), ["<2x>"]), Words(["c", "d"])


def test_special_tokens_and_tags_have_names() -> None:
    names = ["<pad>", "<bos>", "<eos>", "<unk>", "b", "<2x>"]
    assert name_tokens(SOURCE, [0, 1, 2, 3, 5, 6]) == names


def test_a_space_is_seen_and_what_cannot_be_printed_too() -> None:
    letters = Characters.count(["a b\x1b"])
    assert name_tokens(letters, letters.encode("a \x1b")) == ["a", "␣", "\\x1b", "<eos>"]


def test_a_part_of_a_character_is_shown_by_its_bytes() -> None:
    subwords = Subwords.train(["ab ab"], 262)
    tokens = [*subwords.encode("ä ab")[:-1], EOS]
    assert name_tokens(subwords, tokens) == ["␣", "\\xc3", "\\xa4", "ab", "<eos>"]
    assert name_tokens(Tagged(subwords, ["<2x>"]), [tokens[1], len(subwords)]) == ["\\xc3", "<2x>"]


@pytest.mark.parametrize(
    ("chain", "queries", "keys"),
    [
        ("encoder-self", ["<2x>", "a", "<eos>"], ["<2x>", "a", "<eos>"]),
        ("decoder-self", ["<bos>", "d"], ["<bos>", "d"]),
        ("decoder-cross", ["<bos>", "d"], ["<2x>", "a", "<eos>"]),
    ],
)
def test_each_side_is_read_in_its_own_words_without_padding(
    chain: str, queries: list[str], keys: list[str]
) -> None:
    batch = Batch.of([[4, 4, 4, 2], [5, 2]], [[6, 5, 5, 5, 2], [6, 4, 2]])
    assert name_queries_and_keys(batch, chain, SOURCE, TARGET, 1) == (queries, keys)


def test_a_language_model_has_one_vocabulary() -> None:
    batch = Batch.of([[4, 5, 2]])
    names = ["<bos>", "c", "d"]
    assert name_queries_and_keys(batch, "decoder-self", None, TARGET) == (names, names)
