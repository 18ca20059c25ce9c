"""Lines to words, and posteriors of tokens to posteriors of the words that spaces separate."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from latentheads.checks import check_known
from latentheads.word_alignment.symmetrization import LinkPosterior

SPLITS = ("spaces", "punctuation")
"""What separates the units that are aligned: white space alone, or punctuation too."""

TOKEN = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class TokenizedLine:
    """The tokens of a line, in lower case.

    Attributes:
        tokens: The tokens.
        words: For each token, the index of its word: what stands between white space.
        length: Number of words.
    """

    tokens: tuple[str, ...]
    words: tuple[int, ...]
    length: int


def tokenize_line(line: str, split: str = "spaces") -> TokenizedLine:
    """Splits a line.

    Args:
        line: The line.
        split: One of :data:`SPLITS`.
    """
    check_known("split", split, SPLITS)
    words = line.lower().split()
    parts = [[word] if split == "spaces" else TOKEN.findall(word) for word in words]
    return TokenizedLine(
        tuple(token for tokens in parts for token in tokens),
        tuple(index for index, tokens in enumerate(parts) for _ in tokens),
        len(words),
    )


def join_tokens(
    posterior: LinkPosterior, source: TokenizedLine, target: TokenizedLine
) -> LinkPosterior:
    """The posterior of words: that of the likeliest link between their tokens."""
    if source.length == len(source.tokens) and target.length == len(target.tokens):
        return posterior
    forward, backward = (
        _join(direction, source, target) for direction in (posterior.forward, posterior.backward)
    )
    return LinkPosterior(forward, backward, posterior.log_probs)


def _join(
    probabilities: Float[ndarray, "token_source token_target"],
    source: TokenizedLine,
    target: TokenizedLine,
) -> Float[ndarray, "source target"]:
    joined = np.zeros((source.length, target.length), dtype=probabilities.dtype)
    rows: Sequence[int] = source.words
    np.maximum.at(
        joined, (np.asarray(rows, int)[:, None], np.asarray(target.words, int)), probabilities
    )
    return joined
