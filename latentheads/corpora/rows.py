"""Sentences of token ids in one flat array: millions of them without a Python object each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from latentheads.batch import BOS, PAD

__all__ = ["Rows"]


class Rows(Sequence[NDArray[np.int32]]):
    """Sentences of different lengths, one behind the other, or other stretches of one text.

    Args:
        tokens: The token ids of all sentences.
        ends: Where each sentence ends.
        lengths: Tokens of each; when not given, each begins where the one before it ends.
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
        """Packs sentences."""
        tokens: list[NDArray[np.int32]] = []
        lengths: list[int] = []
        for sentence in sentences:
            tokens.append(np.asarray(sentence, dtype=np.int32))
            lengths.append(len(sentence))
        flat = np.concatenate(tokens) if tokens else np.zeros(0, np.int32)
        return cls(flat, np.cumsum(lengths, dtype=np.int64))

    @classmethod
    def cut(cls, tokens: NDArray[np.int32], block: int) -> Rows:
        """Cuts a running text into blocks, the last one as long as what is left."""
        if block < 1:
            raise ValueError(f"block must be at least 1, got {block}")
        whole = np.arange(block, len(tokens) + block, block, dtype=np.int64)
        return cls(tokens, np.minimum(whole, len(tokens)))

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """The sentences of some rows, one behind the other."""
        tokens = np.concatenate([part.tokens for part in parts])
        return cls(tokens, np.cumsum(np.concatenate([part.lengths for part in parts])))

    def prepended(self, token: int) -> Rows:
        """Sentences one behind the other, each begun with one token more."""
        ends = self.ends + np.arange(1, len(self) + 1)
        return Rows(np.insert(self.tokens, self.starts, token), ends)

    def __len__(self) -> int:
        return len(self.ends)

    def __repr__(self) -> str:
        return f"Rows({len(self):,} rows, {self.lengths.sum():,} tokens)"

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where each begins."""
        starts: NDArray[np.int64] = self.ends - self.lengths
        return starts

    def before(self, places: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """The token before each, BOS before the first of all."""
        starts = self.starts[np.asarray(places, dtype=np.int64)]
        before: NDArray[np.int64] = self.tokens[np.maximum(starts - 1, 0)].astype(np.int64)
        return np.where(starts > 0, before, BOS)

    @overload
    def __getitem__(self, place: int) -> NDArray[np.int32]: ...

    @overload
    def __getitem__(self, place: slice) -> Rows: ...

    def __getitem__(self, place: int | slice) -> NDArray[np.int32] | Rows:
        if isinstance(place, slice):
            return self.take(range(len(self))[place])
        place = range(len(self))[place]
        return self.tokens[self.ends[place] - self.lengths[place] : self.ends[place]]

    def take(self, places: Sequence[int] | NDArray[np.int64]) -> Rows:
        """Some of the sentences, in the order asked for."""
        chosen = np.asarray(places, dtype=np.int64)
        lengths = self.lengths[chosen]
        ends = np.cumsum(lengths, dtype=np.int64)
        inside = np.arange(int(lengths.sum())) + np.repeat(self.ends[chosen] - ends, lengths)
        return Rows(self.tokens[inside], ends)

    def view(self, places: Sequence[int] | NDArray[np.int64]) -> Rows:
        """Some of the sentences where they stand in the text, so that what is before each stays."""
        chosen = np.asarray(places, dtype=np.int64)
        return Rows(self.tokens, self.ends[chosen], self.lengths[chosen])

    def first(self, number: int) -> Rows:
        """The first sentences, and no token behind them."""
        ends = self.ends[:number]
        return Rows(self.tokens[: ends.max(initial=0)], ends, self.lengths[:number])

    def shortened(self, limit: int) -> Rows:
        """The first ``limit`` tokens of each at most, the last of them its own last."""
        if limit < 1:
            raise ValueError(f"limit must be at least 1, got {limit}")
        return Rows.of(np.append(row[: min(limit, len(row)) - 1], row[-1:]) for row in self)

    def pad(self, places: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """Some of the sentences as a matrix, padded to the longest of them."""
        chosen = np.asarray(places, dtype=np.int64)
        lengths = self.lengths[chosen]
        columns = np.arange(int(lengths.max(initial=0)))
        inside = columns < lengths[:, None]
        padded = np.full(inside.shape, PAD, dtype=np.int64)
        starts = self.ends[chosen] - lengths
        padded[inside] = self.tokens[(starts[:, None] + columns)[inside]]
        return padded
