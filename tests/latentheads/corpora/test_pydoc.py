"""The language reference as prose: clean paragraphs, bounded sentences, a stable split."""

from __future__ import annotations

import re

import pytest

from latentheads.corpora import pydoc


def test_paragraphs_are_many_single_lines_without_repetition() -> None:
    found = pydoc.paragraphs()
    assert len(found) > 500
    assert len(set(found)) == len(found)
    assert not any("\n" in text or "  " in text for text in found)


@pytest.mark.parametrize("noise", ["::=", ">>>", "***", "===", "+--", "Changed in version"])
def test_code_tables_and_headings_are_left_out(noise: str) -> None:
    assert not any(text.startswith(noise) or f" {noise} " in text for text in pydoc.paragraphs())


def test_paragraphs_begin_and_end_like_prose() -> None:
    assert all(re.match(r"[\w\"(].*[.:!?)]$", text) for text in pydoc.paragraphs())


def test_most_tokens_are_words() -> None:
    tokens = [token for sentence in pydoc.sentences() for token in sentence]
    assert len(tokens) > 20_000
    assert sum(token.isalpha() for token in tokens) > 0.75 * len(tokens)
    assert all(token == token.lower() and not token.isspace() for token in tokens)


@pytest.mark.parametrize("maximum", [3, 7, 60])
def test_no_sentence_exceeds_the_maximum_and_no_token_is_lost(maximum: int) -> None:
    whole = [token for sentence in pydoc.sentences(maximum=10_000) for token in sentence]
    pieces = pydoc.sentences(maximum=maximum)
    assert max(map(len, pieces)) <= maximum
    assert min(map(len, pieces)) >= 1
    assert [token for piece in pieces for token in piece] == whole


def test_the_split_keeps_every_sentence_and_its_proportions() -> None:
    train, valid, test = pydoc.split()
    assert sorted(train + valid + test) == sorted(pydoc.sentences())
    for part in (valid, test):
        assert 0.02 < len(part) / len(pydoc.sentences()) < 0.1


def test_the_split_takes_whole_paragraphs_by_position() -> None:
    parts = pydoc.split(every=4, maximum=10_000)
    texts = pydoc.paragraphs()
    for part, residues in zip(parts, ({0, 1}, {2}, {3}), strict=True):
        own = "".join(text for i, text in enumerate(texts) if i % 4 in residues)
        own = re.sub(r"\s", "", own.lower())
        assert all("".join(sentence) in own for sentence in part)


@pytest.mark.parametrize("arguments", [{"maximum": 2}, {"every": 2}])
def test_a_value_too_small_is_refused_in_one_line(arguments: dict[str, int]) -> None:
    (name,) = arguments
    with pytest.raises(ValueError, match=f"^{name} must be at least 3; got 2$"):
        pydoc.split(**arguments)
