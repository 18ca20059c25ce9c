"""Sources that are no text: the frames of many utterances in one array, perhaps memory-mapped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray


class Frames:
    """A ragged array: the packed frames of utterances and the end of each.

    Args:
        values: The frames of all utterances.
        ends: The end of each utterance in ``values``, exclusive.
        lengths: Number of frames of each. None: each begins where the previous one ends.
    """

    def __init__(
        self,
        values: Float[np.ndarray, "frame bin"],
        ends: Int[np.ndarray, " utterance"],
        lengths: Int[np.ndarray, " utterance"] | None = None,
    ) -> None:
        self.values = values
        self.ends = ends
        self.lengths = np.diff(ends, prepend=0) if lengths is None else lengths

    def __len__(self) -> int:
        return len(self.ends)

    def __repr__(self) -> str:
        return f"Frames({len(self):,} utterances, {int(self.lengths.sum()):,} frames)"

    def __getitem__(self, index: int) -> NDArray[np.float16]:
        return self.values[self.ends[index] - self.lengths[index] : self.ends[index]]

    def take(self, indices: Sequence[int] | NDArray[np.int64]) -> Frames:
        """A view of the utterances at some indices, in their order."""
        selected = np.asarray(indices, dtype=np.int64)
        return Frames(self.values, self.ends[selected], self.lengths[selected])

    def pad(
        self, indices: Sequence[int] | NDArray[np.int64]
    ) -> Float[np.ndarray, "utterance frame bin"]:
        """The utterances at some indices, zero-padded to the longest of them."""
        selected = np.asarray(indices, dtype=np.int64)
        longest = int(self.lengths[selected].max(initial=0))
        padded = np.zeros((len(selected), longest, self.values.shape[1]), np.float32)
        for row, index in zip(padded, selected.tolist(), strict=True):
            row[: self.lengths[index]] = self[index]
        return padded

    def evenly_spaced(self, max_frames: int) -> NDArray[np.float16]:
        """At most ``max_frames`` of all stored frames, evenly spaced."""
        return np.ascontiguousarray(self.values[:: max(1, -(-len(self.values) // max_frames))])

    def save(self, path: Path) -> None:
        """Saves the frames as a ``.npy`` file, one utterance after another."""
        shape = int(self.lengths.sum()), self.values.shape[1]
        if not shape[0]:  # an empty file cannot be mapped
            np.save(path, np.zeros(shape, np.float16), allow_pickle=False)
            return
        memmap = np.lib.format.open_memmap(path, "w+", np.float16, shape)
        for end, index in zip(np.cumsum(self.lengths).tolist(), range(len(self)), strict=True):
            memmap[end - self.lengths[index] : end] = self[index]
        memmap.flush()
