"""ROUGE by hand."""

from __future__ import annotations

from typing import Any

import pytest

from latentheads.metrics.rouge import first_sentence, rouge


def test_overlaps_by_hand() -> None:
    rouge_scores = rouge(["the cat sat"], [["the cat lay down"]])
    assert rouge_scores.rouge1 == pytest.approx(100 * 2 * (2 / 3) * (2 / 4) / (2 / 3 + 2 / 4))
    assert rouge_scores.rouge2 == pytest.approx(100 * 2 * (1 / 2) * (1 / 3) / (1 / 2 + 1 / 3))
    swapped = rouge(["cat the sat"], [["the cat lay down"]])
    assert (swapped.rouge1, swapped.rouge2) == (rouge_scores.rouge1, 0)
    assert swapped.rouge_l == pytest.approx(100 * 2 * (1 / 3) * (1 / 4) / (1 / 3 + 1 / 4))


def test_the_nearest_reference_counts_and_summaries_are_averaged() -> None:
    both = rouge(["a b", "c"], [["x y", "a b"], ["d"]])
    assert (both.rouge1, both.rouge2, both.rouge_l) == (50, 50, 50)
    assert "nrefs:1-2|" in both.signature
    assert "nrefs:1|" in rouge(["a"], [["a"]]).signature


def test_case_marks_and_endings_count_for_nothing() -> None:
    assert rouge(["Dogs, running!"], [["dog run"]]).rouge1 == 100
    assert rouge([""], [["dog"]]).rouge1 == 0


def test_words_of_other_languages_are_words() -> None:
    rouge_scores = rouge(["Собака бежит", "schönes Mädchen"], [["Собака спит"], ["ein Mädchen"]])
    assert rouge_scores.rouge1 == 50
    assert "|tok:any|stem:none|" in rouge_scores.signature
    names = rouge(["Gödel sleeps"], [["Gödel sleeps " + "in a long text of English " * 20]])
    assert "|stem:porter|" in names.signature
    assert rouge(["नमस्ते जग"], [["नमस्ते"]]).rouge1 == pytest.approx(200 / 3)  # with marks in a word


@pytest.mark.parametrize(("foreign", "is_english"), [(1, True), (2, False)])
def test_one_letter_of_two_hundred_may_be_of_another_alphabet(
    foreign: int, is_english: bool
) -> None:
    text = "é" * foreign + "a" * (200 - foreign)
    assert ("|stem:porter|" in rouge([text], [[text]]).signature) == is_english


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("One v. two. Three.", "One v."),
        ("Is it? Yes.", "Is it?"),
        ("version 1.2 is out. Next", "version 1.2 is out."),
        ("  no mark ", "no mark"),
        ("", ""),
    ],
)
def test_the_lead_is_the_first_sentence(text: str, first: str) -> None:
    assert first_sentence(text) == first


@pytest.mark.parametrize(
    ("summaries", "references", "message"),
    [
        (["a"], [], "every summary needs one reference or more"),
        (["a"], [[]], "every summary needs one reference or more"),
        ("ab", [["a"], ["b"]], "summaries must be a list, got 'ab'"),
        (["a b"], ["a b"], "references of a summary must be a list, got 'a b'"),
        (["a"], [["a"], ["b"]], "summaries must be as many as references, 2, got 1"),
    ],
)
def test_what_cannot_be_scored_is_refused(
    summaries: Any, references: list[Any], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        rouge(summaries, references)
