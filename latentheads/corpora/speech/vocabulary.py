"""The source vocabulary of speech: positions in time in the place of tokens."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import Any

import numpy as np

from latentheads.batch import EOS, SPECIALS
from latentheads.corpora.rows import Rows
from latentheads.corpora.speech.features import FRAME_SECONDS, Filterbank
from latentheads.corpora.speech.frames import Frames
from latentheads.corpora.vocabulary import Vocabulary
from latentheads.layers.subsampler import FACTOR, subsampled_length

__all__ = ["POSITION", "Positions", "bins_of"]

POSITION = len(SPECIALS)
"""The one token that speech is made of: it says that there is sound, the frames say which."""


def bins_of(source: Vocabulary | None) -> int:
    """Coefficients of the frames of a source that is speech; 0 of text, and of no source."""
    return source.filterbank.bins if isinstance(source, Positions) else 0


class Positions(Vocabulary):
    """The positions that are left of frames, a token each, all alike.

    So the tokens of speech are counted, padded, masked and pointed at as those of a text.

    Args:
        filterbank: The filters by which sound becomes frames.
    """

    kind = "positions"

    def __init__(self, filterbank: Filterbank) -> None:
        self.filterbank = filterbank

    def __len__(self) -> int:
        return POSITION + 1

    def __repr__(self) -> str:
        return f"Positions({self.filterbank.bins} bins up to {self.filterbank.top:,} Hz)"

    def encode(self, line: str) -> list[int]:
        """Refuses text.

        Raises:
            ValueError: Always.
        """
        raise ValueError("this run hears speech, it reads no text: give it files to transcribe")

    def encode_all(self, lines: Iterable[str]) -> Rows:
        """Refuses text."""
        return Rows.of(map(self.encode, lines))

    def rows(self, frames: Frames) -> Rows:
        """The positions of utterances."""
        ends = np.cumsum(subsampled_length(frames.lengths))
        return Rows(np.full(int(ends[-1]) if len(ends) else 0, POSITION, np.int32), ends)

    def decode(self, ids: Iterable[int]) -> str:
        """How long it sounds."""
        number = sum(1 for _ in takewhile(EOS.__ne__, ids))
        return f"{number * FACTOR * FRAME_SECONDS:.2f} s of speech"

    def name_places(self, number: int) -> list[str]:
        """The time at which each of the first positions begins."""
        return [f"{place * FACTOR * FRAME_SECONDS:.2f} s" for place in range(number)]

    def word_places(self, ids: Iterable[int]) -> list[int | None]:
        """No position is a word."""
        return [None for _ in takewhile(EOS.__ne__, ids)]

    def to_json(self) -> dict[str, Any]:
        """How sound becomes frames."""
        return {"kind": self.kind, "bins": self.filterbank.bins, "top": self.filterbank.top}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Positions:
        """Makes it again.

        Raises:
            ValueError: It does not describe one.
        """
        bins, top = value.get("bins"), value.get("top")
        if type(bins) is not int or type(top) is not int:
            raise ValueError("a vocabulary of positions says bins and top, whole numbers")
        return cls(Filterbank(bins, top))
