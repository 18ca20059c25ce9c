"""Words of a line and their tokens, with the punctuation around a word as words of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, takewhile

from latentheads.batch import EOS
from latentheads.corpora.text import is_punctuation, split_word
from latentheads.corpora.vocabulary import Vocabulary


def split_word_ids(vocabulary: Vocabulary, ids: Iterable[int], line: str) -> list[int | None]:
    """The index of the word of each token among those of ``split_punctuation``, up to EOS.

    A token across several belongs to the first that is not punctuation; a token of no word, such as
    a space or a tag, has None.

    Args:
        vocabulary: The vocabulary that encoded the line.
        ids: The token ids.
        line: The line itself: its unknown words have punctuation that cannot be decoded.
    """
    tokens = list(takewhile(EOS.__ne__, ids))
    texts = [vocabulary.decode(tokens[:number]) for number in range(len(tokens) + 1)]
    words = list(_words_of_characters(texts[-1], map(split_word, line.split())))
    return [
        _choose_word(words[max(0, min(start, end - 1)) : end])  # a part of a character adds no text
        for start, end in pairwise(map(len, texts))
    ]


def _words_of_characters(
    text: str, words: Iterable[Sequence[str]]
) -> Iterator[tuple[int, bool] | None]:
    """The word of each character of a decoded line, and whether this is punctuation.

    Args:
        text: The decoded line.
        words: The parts of each word of the line itself.
    """
    first, rest = 0, iter(words)
    for piece in re.findall(r"\s+|\S+", text):
        if piece.isspace():
            yield from [None] * len(piece)
            continue
        parts = next(rest)
        marks = [is_punctuation(part[0]) for part in parts]
        owners = [index for index, part in enumerate(parts) for _ in part]
        if len(owners) != len(piece):  # an unknown word, which is decoded as another text
            owners = [marks.index(min(marks))] * len(piece)
        yield from ((first + index, marks[index]) for index in owners)
        first += len(parts)


def _choose_word(words: Sequence[tuple[int, bool] | None]) -> int | None:
    """The first word of a token's characters that is not punctuation, otherwise the first."""
    candidates = [word for word in words if word is not None]
    chosen = min(candidates, key=lambda word: word[1], default=None)
    return None if chosen is None else chosen[0]
