"""Frames of many utterances in one flat array, which may be mapped from a file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

__all__ = ["Frames", "pack"]


class Frames:
    """The frames of utterances, one behind the other.

    Args:
        values: Of all utterances.
        ends: Where each ends.
        lengths: Frames of each; when not given, each begins where the one before it ends.
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

    def __getitem__(self, place: int) -> NDArray[np.float16]:
        return self.values[self.ends[place] - self.lengths[place] : self.ends[place]]

    def take(self, places: Sequence[int] | NDArray[np.int64]) -> Frames:
        """Some of the utterances, in the order asked for; nothing is copied."""
        chosen = np.asarray(places, dtype=np.int64)
        return Frames(self.values, self.ends[chosen], self.lengths[chosen])

    def pad(
        self, places: Sequence[int] | NDArray[np.int64]
    ) -> Float[np.ndarray, "utterance frame bin"]:
        """Some of the utterances, with zeros behind each up to the longest of them."""
        chosen = np.asarray(places, dtype=np.int64)
        longest = int(self.lengths[chosen].max(initial=0))
        padded = np.zeros((len(chosen), longest, self.values.shape[1]), np.float32)
        for row, place in zip(padded, chosen.tolist(), strict=True):
            row[: self.lengths[place]] = self[place]
        return padded

    def sample(self, most: int) -> NDArray[np.float16]:
        """Frames at even distances among all that are stored, at most as many as asked for."""
        return np.ascontiguousarray(self.values[:: max(1, -(-len(self.values) // most))])

    def save(self, path: Path) -> None:
        """Writes the frames as a file of numpy, one utterance after the other."""
        shape = int(self.lengths.sum()), self.values.shape[1]
        if not shape[0]:  # an empty file cannot be mapped
            np.save(path, np.zeros(shape, np.float16), allow_pickle=False)
            return
        written = np.lib.format.open_memmap(path, "w+", np.float16, shape)
        for end, place in zip(np.cumsum(self.lengths).tolist(), range(len(self)), strict=True):
            written[end - self.lengths[place] : end] = self[place]
        written.flush()


def pack(
    utterances: Iterable[NDArray[np.float16]], bins: int, folder: Path | None = None
) -> Frames:
    """Writes frames to a file without a name, as they come, and maps it into memory.

    The system takes the file back when the frames are no longer used.

    Args:
        utterances: The frames of each.
        bins: Coefficients of a frame.
        folder: Where there is room for the file; None: where the system puts such files.

    Raises:
        OSError: There is no room.
    """
    lengths: list[int] = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for frames in utterances:
            file.write(np.ascontiguousarray(frames, np.float16).data)
            lengths.append(len(frames))
        file.flush()
        return Frames(_map_frames(file, sum(lengths), bins), np.cumsum(lengths, dtype=np.int64))


def _map_frames(file: Any, number: int, bins: int) -> NDArray[np.float16]:
    if not number:  # an empty file cannot be mapped
        return np.zeros((0, bins), np.float16)
    return np.asarray(np.memmap(file, np.float16, "r", shape=(number, bins)))
