"""Packs the frames of utterances into one memory-mapped array."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from latentheads.corpora.frames import Frames


def pack_frames(
    utterances: Iterable[NDArray[np.float16]], bins: int, folder: Path | None = None
) -> Frames:
    """Writes frames to an unnamed temporary file and memory-maps it.

    The system deletes the file when the frames are no longer used.

    Args:
        utterances: The frames of each utterance.
        bins: Number of mel bins.
        folder: Folder of the temporary file; None: the system's.
    """
    lengths: list[int] = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for frames in utterances:
            file.write(np.ascontiguousarray(frames, np.float16).data)
            lengths.append(len(frames))
        file.flush()
        values = np.zeros((0, bins), np.float16)
        if any(lengths):  # an empty file cannot be mapped
            values = np.asarray(np.memmap(file, np.float16, "r", shape=(sum(lengths), bins)))
    return Frames(values, np.cumsum(lengths, dtype=np.int64))
