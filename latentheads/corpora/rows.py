"""Packed sentences: token ids in one flat array, without a Python object for each sentence."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from latentheads.batch import BOS, PAD


class Rows(Sequence[NDArray[np.int32]]):
    """A ragged array: packed token ids and the end of each row (a sentence, block or window).

    Args:
        tokens: The token ids of all rows.
        ends: The end of each row in ``tokens``, exclusive.
        lengths: The length of each row. None: each row begins where the previous one ends.
    """

    def __init__(
        self,
        tokens: NDArray[np.int32],
        ends: NDArray[np.int64],
        lengths: NDArray[np.int64] | None = None,
    ) -> None:
        self.tokens = tokens
        self.ends = ends
        self.lengths = np.diff(ends, prepend=0) if lengths is None else lengths

    @classmethod
    def of(cls, sentences: Iterable[Sequence[int] | NDArray[np.int32]]) -> Rows:
        """Packs sentences of token ids without keeping a Python object for each."""
        tokens, lengths = array("i"), array("q")
        for sentence in sentences:
            tokens.frombytes(np.asarray(sentence, np.int32).tobytes())
            lengths.append(len(sentence))
        return cls(np.array(tokens, np.int32), np.cumsum(np.array(lengths, np.int64)))

    @classmethod
    def in_blocks(cls, tokens: NDArray[np.int32], block_size: int) -> Rows:
        """Splits a running text into blocks; the last one may be shorter."""
        ends = np.arange(block_size, len(tokens) + block_size, block_size, dtype=np.int64)
        return cls(tokens, np.minimum(ends, len(tokens)))

    def prepended(self, tokens: int | NDArray[np.int64]) -> Rows:
        """Prepends a token, the same or its own, to every row; the rows must be contiguous."""
        ends = self.ends + np.arange(1, len(self) + 1)
        return Rows(np.insert(self.tokens, self.starts, tokens), ends)

    def __len__(self) -> int:
        return len(self.ends)

    def __repr__(self) -> str:
        return f"Rows({len(self):,} rows, {self.lengths.sum():,} tokens)"

    @property
    def starts(self) -> NDArray[np.int64]:
        """The start of each row in ``tokens``."""
        starts: NDArray[np.int64] = self.ends - self.lengths
        return starts

    def previous_tokens(self, indices: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """The token before each of some rows; BOS before the first of the text."""
        starts = self.starts[np.asarray(indices, dtype=np.int64)]
        previous: NDArray[np.int64] = self.tokens[np.maximum(starts - 1, 0)].astype(np.int64)
        return np.where(starts > 0, previous, BOS)

    @overload
    def __getitem__(self, index: int) -> NDArray[np.int32]: ...

    @overload
    def __getitem__(self, index: slice) -> Rows: ...

    def __getitem__(self, index: int | slice) -> NDArray[np.int32] | Rows:
        if isinstance(index, slice):
            return self.take(range(len(self))[index])
        index = range(len(self))[index]
        return self.tokens[self.ends[index] - self.lengths[index] : self.ends[index]]

    def take(self, indices: Sequence[int] | NDArray[np.int64]) -> Rows:
        """Copies the rows at some indices, in their order."""
        selected = np.asarray(indices, dtype=np.int64)
        lengths = self.lengths[selected]
        ends = np.cumsum(lengths, dtype=np.int64)
        positions = np.arange(int(lengths.sum())) + np.repeat(self.ends[selected] - ends, lengths)
        return Rows(self.tokens[positions], ends)

    def view(self, indices: Sequence[int] | NDArray[np.int64]) -> Rows:
        """A view of the rows at some indices; the tokens before each stay available."""
        selected = np.asarray(indices, dtype=np.int64)
        return Rows(self.tokens, self.ends[selected], self.lengths[selected])

    def first(self, number: int) -> Rows:
        """A view of the first rows, without the tokens after them."""
        ends = self.ends[:number]
        return Rows(self.tokens[: ends.max(initial=0)], ends, self.lengths[:number])

    def truncate(self, limit: int) -> Rows:
        """Truncates each row to ``limit`` tokens; its last token (EOS) stays the last."""
        return Rows.of(np.append(row[: min(limit, len(row)) - 1], row[-1:]) for row in self)

    def pad(self, indices: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows at some indices as a matrix, padded to the longest of them."""
        selected = np.asarray(indices, dtype=np.int64)
        lengths = self.lengths[selected]
        columns = np.arange(int(lengths.max(initial=0)))
        is_token = columns < lengths[:, None]
        padded = np.full(is_token.shape, PAD, dtype=np.int64)
        starts = self.ends[selected] - lengths
        padded[is_token] = self.tokens[(starts[:, None] + columns)[is_token]]
        return padded
