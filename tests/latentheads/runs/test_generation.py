"""Prompts become tokens and tokens text; results stand where their inputs stood."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentheads.batch import EOS, UNK
from latentheads.corpora import Part, Rows, Words
from latentheads.corpora.subwords import Subwords
from latentheads.corpora.text import list_texts
from latentheads.runs.generation import (
    EncodedInputs,
    continue_or_skip,
    continue_text,
    decode_text,
    encode_prompt,
    sample_repeatedly,
    unknown_words,
)
from tests.typechecking import unchecked

VOCABULARY = Words(["the", "old", "men"])
TEXTS = st.lists(st.lists(st.sampled_from(VOCABULARY.words[UNK + 1 :])).map(" ".join), min_size=1)


def train_subwords(**options: Any) -> Subwords:
    return Subwords.train(["the old men sing", "The old — ÄB \t x"] * 9, 300, **options)


@given(TEXTS)
def test_running_text_is_decoded_as_it_was_encoded(lines: list[str]) -> None:
    text = "\n".join(lines)
    assert decode_text(VOCABULARY, encode_prompt(VOCABULARY, text, True)) == text


@given(TEXTS)
def test_a_prompt_of_a_model_of_sentences_is_one_line(lines: list[str]) -> None:
    tokens = encode_prompt(VOCABULARY, "\n".join(lines), False)
    assert tokens == encode_prompt(VOCABULARY, " ".join(lines), False)
    assert EOS not in tokens


def test_no_prompt_holds_a_special_token_but_the_end_of_a_line() -> None:
    the, old = VOCABULARY.encode("the old")[:-1]
    assert encode_prompt(VOCABULARY, "the\n\nold\n", True) == [the, EOS, EOS, old, EOS]
    assert encode_prompt(VOCABULARY, "<pad> <bos> <eos> <unk>", True) == [UNK] * 4
    assert encode_prompt(VOCABULARY, "", True) == encode_prompt(VOCABULARY, "", False) == []


def test_unknown_words_are_named_once_in_their_order() -> None:
    prompt = "zork the <unk> cat\nzork old"
    assert unknown_words(VOCABULARY, prompt) == ["zork", "cat"]
    tokenised = Subwords.train(["the cat"], 300, tokenised=True)
    assert unknown_words(tokenised, "the caz zork") == ["caz", "zork"]  # of some letters, of all


def test_a_newline_within_a_line_becomes_a_space() -> None:
    target = train_subwords()
    tokens = [*target.encode("the\nold"), *target.encode("men\n"), EOS]
    assert decode_text(target, tokens) == "the old\nmen \n\n"


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("tokenised", [False, True])
@pytest.mark.parametrize("prompt", ["", "The OLD — zork ☃", "the ", "  x"])
def test_subwords_stand_behind_the_very_prompt(
    lowercase: bool, tokenised: bool, prompt: str
) -> None:
    target = train_subwords(lowercase=lowercase, tokenised=tokenised)
    sampled: list[list[int]] = []

    def sample(_: Any, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
        sampled.extend(map(list, prompts))
        return [target.encode("old men") for _ in prompts]

    trained = SimpleNamespace(target=target, processor=SimpleNamespace(block_size=0))
    texts = list(unchecked(continue_text)(trained, SimpleNamespace(sample=sample), prompt, 2))
    assert texts == [f"{prompt} old men" if prompt else "old men"] * 2
    assert sampled == [target.encode(prompt)[:-1]] * 2


@given(st.lists(st.booleans(), max_size=9))
def test_results_stand_where_their_inputs_stood(are_encoded: list[bool]) -> None:
    indices = [index for index, is_encoded in enumerate(are_encoded) if is_encoded]
    inputs = EncodedInputs(Part(Rows.of([[5]] * len(indices)), None), indices, len(are_encoded))
    results = inputs.scatter((f"of {index}" for index in indices), "")
    assert results == [f"of {i}" if here else "" for i, here in enumerate(are_encoded)]


def test_samples_are_listed_by_input() -> None:
    rounds = iter([["a0", "b0"], ["a1", "b1"], ["a2", "b2"]])
    assert sample_repeatedly(lambda: next(rounds), 3) == [["a0", "a1", "a2"], ["b0", "b1", "b2"]]


@pytest.mark.parametrize(
    ("error", "is_skipped"),
    [
        (MemoryError(), True),
        (RuntimeError("can't allocate memory"), True),
        (RuntimeError("?"), False),
    ],
)
def test_only_a_lack_of_memory_skips_a_prompt(error: Exception, is_skipped: bool) -> None:
    def sample(*_: Any) -> list[list[int]]:
        raise error

    processor, reasons = SimpleNamespace(block_size=3, longest_line=0), list[str]()
    trained = SimpleNamespace(target=VOCABULARY, processor=processor)
    with nullcontext() if is_skipped else pytest.raises(RuntimeError, match=r"^\?$"):
        arguments = (SimpleNamespace(sample=sample), "the", 2)
        texts = unchecked(continue_or_skip)(
            trained, *arguments, lambda _, reason: reasons.append(reason), reasons.append
        )
        assert list(texts) == ["", ""]
    assert [reason[:13] for reason in reasons] == ["out of memory"] * is_skipped


def test_one_text_is_no_list_of_texts() -> None:
    assert list_texts("sentences", iter(["a", "b"])) == ["a", "b"]
    with pytest.raises(ValueError, match=r"^sentences must be "):
        list_texts("sentences", "a b")
