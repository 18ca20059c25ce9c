"""The pages have short sentences, and use the words of the field."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import Page
from tests.docs.readability import (
    LONGEST,
    LONGEST_MEAN,
    WORD,
    avoided_words,
    chosen_pages,
    mean_length,
    sentences,
)

PAGES = [page for page in chosen_pages() if len(sentences(page)) > 1]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_sentences_are_short(page: Page) -> None:
    assert mean_length(page) < LONGEST_MEAN
    long = [text for text in sentences(page) if len(WORD.findall(text)) > LONGEST]
    assert long == []


@pytest.mark.parametrize("page", chosen_pages(), ids=str)
def test_words_are_those_of_the_field(page: Page) -> None:
    assert avoided_words(page) == []


def test_sentences_and_avoided_words_are_found(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(
        "# The law of heads\n\nOne two three. `code` has four words.\n\n"
        "| a | silent cell |\n\n* an item\n  of five [words](a-page.md)\n\n```text\nthe law\n```\n"
    )
    page = Page(path)
    assert sentences(page) == ["One two three.", "`code` has four words.", "an item of five words"]
    assert mean_length(page) == pytest.approx((3 + 4 + 5) / 3)
    assert avoided_words(page) == ["law", "silent"]
