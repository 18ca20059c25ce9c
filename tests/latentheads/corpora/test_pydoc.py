"""The language reference as prose: clean paragraphs, bounded sentences, a stable split."""

from __future__ import annotations

import re
from itertools import chain

import pytest

from latentheads.corpora import pydoc


def test_paragraphs_are_many_single_lines_without_repetition() -> None:
    paragraphs = pydoc.paragraphs()
    assert len(paragraphs) > 500
    assert len(set(paragraphs)) == len(paragraphs)
    assert not any("\n" in text or "  " in text for text in paragraphs)


@pytest.mark.parametrize("noise", ["::=", ">>>", "***", "===", "+--", "Changed in version"])
def test_code_tables_and_headings_are_left_out(noise: str) -> None:
    assert not any(text.startswith(noise) or f" {noise} " in text for text in pydoc.paragraphs())


def test_paragraphs_begin_and_end_like_prose() -> None:
    assert all(re.match(r"[\w\"(].*[.:!?)]$", text) for text in pydoc.paragraphs())


def test_most_tokens_are_words() -> None:
    tokens = [token for part in pydoc.split() for sentence in part for token in sentence]
    assert len(tokens) > 20_000
    assert sum(token.isalpha() for token in tokens) > 0.75 * len(tokens)
    assert all(token == token.lower() and not token.isspace() for token in tokens)


def test_no_sentence_is_too_long_and_no_token_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = pydoc.split()
    monkeypatch.setattr(pydoc, "MAX_TOKENS", 10_000)
    for pieces, whole in zip(usual, pydoc.split(), strict=True):
        assert 1 <= min(map(len, pieces)) <= max(map(len, pieces)) <= 60
        assert [*chain(*pieces)] == [*chain(*whole)]


def test_the_split_takes_whole_paragraphs_by_position() -> None:
    parts, texts = pydoc.split(), pydoc.paragraphs()
    for part, residues in zip(parts, (range(18), [18], [19]), strict=True):
        own = "".join(text for i, text in enumerate(texts) if i % 20 in residues)
        own = re.sub(r"\s", "", own.lower())
        assert all("".join(sentence) in own for sentence in part)
        assert 0.4 < len(part) * 20 / sum(map(len, parts)) / len(residues) < 2
