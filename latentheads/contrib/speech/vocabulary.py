"""The source vocabulary of speech: positions in time instead of tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from latentheads.batch import SPECIALS
from latentheads.contrib.speech.audio import load_features_for_run
from latentheads.contrib.speech.features import FRAME_SECONDS, Filterbank
from latentheads.contrib.speech.frames import pack_frames
from latentheads.contrib.speech.subsampler import FACTOR, subsampled_length
from latentheads.corpora.frames import Frames
from latentheads.corpora.rows import Rows
from latentheads.corpora.vocabulary import Vocabulary, before_end
from latentheads.errors import UnfinishedError, one_line_message

POSITION = len(SPECIALS)
"""The only token id of speech: it marks a position; the frames hold its content."""


class Positions(Vocabulary):
    """The positions of subsampled frames, each the same token.

    So speech is batched, padded, masked and aligned like a text.
    """

    kind = "positions"

    def __init__(self, filterbank: Filterbank) -> None:
        self.filterbank = filterbank
        self.bins = filterbank.bins

    def __len__(self) -> int:
        return POSITION + 1

    def __repr__(self) -> str:
        return f"Positions({self.filterbank.bins} bins up to {self.filterbank.high_freq:,} Hz)"

    def encode(self, line: str) -> list[int]:
        """Not supported: speech is not a text."""
        raise ValueError("the source of this run is speech, not text: give it files to transcribe")

    def encode_inputs(
        self, inputs: Sequence[str | Path], max_seconds: float = 0.0
    ) -> tuple[Rows, Frames]:
        """The positions and the frames of audio files."""
        features = []
        for file in inputs:
            try:
                features.append(load_features_for_run(Path(file), self.filterbank, max_seconds))
            except (ValueError, MemoryError) as error:
                raise UnfinishedError(f"{file}: {one_line_message(error)}") from error
        frames = pack_frames(features, self.filterbank.bins)
        return self.rows(frames), frames

    def rows(self, frames: Frames) -> Rows:
        """The positions of utterances."""
        ends = np.cumsum(subsampled_length(frames.lengths))
        return Rows(np.full(int(ends[-1]) if len(ends) else 0, POSITION, np.int32), ends)

    def decode(self, ids: Iterable[int]) -> str:
        number = sum(1 for _ in before_end(ids))
        return f"{number * FACTOR * FRAME_SECONDS:.2f} s of speech"

    def time_labels(self, number: int) -> list[str]:
        """The start time of each of the first positions, as text."""
        return [f"{index * FACTOR * FRAME_SECONDS:.2f} s" for index in range(number)]

    def word_ids(self, ids: Iterable[int]) -> list[int | None]:
        return [None for _ in before_end(ids)]

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "bins": self.filterbank.bins, "top": self.filterbank.high_freq}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Positions:
        return cls(Filterbank(value["bins"], value["top"]))
