"""Lines to words, and probabilities of tokens to those of the words that spaces separate."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from latentheads.checks import check_choice
from latentheads.corpora.text import is_punctuation

SPLITS = ("spaces", "punctuation", "characters")
"""What separates the units that are aligned: white space alone, or punctuation too; or nothing:
each character but white space is one."""

Line = str | Sequence[str]
"""A line of text, or its words."""

LONG_WORDS = 15
"""Mean letters of a word above which a text is taken to have no spaces between words."""

FIRST_LINES = 1000
"""Lines whose words are measured."""

TOKEN = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class TokenizedLine:
    """The tokens of a line, in lower case.

    Attributes:
        tokens: The tokens.
        words: For each token, the index of its word: what stands between white space. None: it is
            punctuation of a word with a letter or digit, whose links are no links of the word.
        length: Number of words.
    """

    tokens: tuple[str, ...]
    words: tuple[int | None, ...]
    length: int

    @classmethod
    def of_words(cls, words: Sequence[str]) -> TokenizedLine:
        """A line whose words are its tokens."""
        return cls(tuple(words), tuple(range(len(words))), len(words))

    @property
    def has_word_tokens(self) -> bool:
        """Whether each word is one token."""
        return self.length == len(self.tokens)

    @cached_property
    def tokens_by_word(self) -> list[list[int]]:
        """The tokens of each word, without punctuation whose links are no links of the word."""
        tokens: list[list[int]] = [[] for _ in range(self.length)]
        for token, word in enumerate(self.words):
            if word is not None:
                tokens[word].append(token)
        return tokens


def tokenize_line(line: Line, split: str = "spaces") -> TokenizedLine:
    """Splits a line."""
    check_choice("split", split, SPLITS)
    words = line.split() if isinstance(line, str) else line
    if split == "characters":  # in lower case a letter may be two, as a Turkish one is
        letters = (letter for word in words for letter in word if not letter.isspace())
        return TokenizedLine.of_words([letter.lower() for letter in letters])
    words = [word.lower() for word in words]
    if split == "spaces":
        return TokenizedLine.of_words(words)
    parts = [_split_punctuation(word) for word in words]
    return TokenizedLine(
        tuple(token for tokens in parts for token in tokens),
        tuple(word for index, tokens in enumerate(parts) for word in _words_of(index, tokens)),
        len(words),
    )


def describe_long_words(lines: Sequence[Line]) -> str | None:
    """What to do if the words of a text are so long that it seems to have no spaces, or None."""
    words = [
        word
        for line in islice(lines, FIRST_LINES)
        for word in (line.split() if isinstance(line, str) else line)
    ]
    mean = sum(map(len, words)) / max(len(words), 1)
    if mean <= LONG_WORDS:
        return None
    return (
        f"words have {mean:.0f} letters on average: write spaces between words, or split "
        "characters, if the script has no spaces"
    )


def _split_punctuation(word: str) -> list[str]:
    """Runs of letters and digits, and punctuation, each with its combining marks and joiners."""
    if word.isascii():
        return TOKEN.findall(word)
    tokens: list[str] = []
    for character in word:
        is_mark = unicodedata.category(character) in ("Mn", "Mc", "Me", "Cf")
        if tokens and (is_mark or (_is_text(character) and _is_text(tokens[-1][0]))):
            tokens[-1] += character
        else:
            tokens.append(character)
    return tokens


def _is_text(character: str) -> bool:
    return character == "_" or not is_punctuation(character)


def _words_of(index: int, tokens: Sequence[str]) -> list[int | None]:
    """The index of a word for its tokens; None for punctuation, unless it has nothing else."""
    counts = [_is_text(token[0]) for token in tokens]
    return [index if is_text or not any(counts) else None for is_text in counts]


def join_tokens(
    probabilities: Float[ndarray, "token_source token_target"],
    source: TokenizedLine,
    target: TokenizedLine,
) -> Float[ndarray, "source target"]:
    """The probabilities of links of words: that of the likeliest link between their tokens.

    Punctuation of a word with a letter or digit does not count: final punctuation aligns with final
    punctuation, whatever the words before it.
    """
    if source.has_word_tokens and target.has_word_tokens:
        return probabilities
    (rows, sources), (columns, targets) = _tokens_and_words(source), _tokens_and_words(target)
    joined = np.zeros((source.length, target.length), dtype=probabilities.dtype)
    np.maximum.at(joined, (sources[:, None], targets), probabilities[rows[:, None], columns])
    return joined


def _tokens_and_words(line: TokenizedLine) -> Int[ndarray, "2 token"]:
    """The tokens that belong to a word, and their words."""
    pairs = [(token, word) for token, word in enumerate(line.words) if word is not None]
    return np.array(pairs, int).reshape(-1, 2).T
