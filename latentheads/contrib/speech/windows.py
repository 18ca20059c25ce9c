"""Sounds longer than a network takes: cut where they are quiet, with the words of each part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

import numpy as np
from jaxtyping import Float

FRAME = 0.02
"""Seconds whose power is one number."""

PAUSE = 0.3
"""Seconds that have to be quiet where a sound is cut."""

LEAST = 0.5
"""Share of the longest window before which none is cut, or there would be many short ones."""


def split_at_pauses(
    samples: Float[np.ndarray, " sample"], rate: int, longest: float
) -> list[tuple[int, int]]:
    """The first sample of each window of a sound, and the one after its last.

    A window ends in the middle of the quietest place of its second half.

    Args:
        samples: The sound.
        rate: Samples in a second.
        longest: Seconds of the longest window.
    """
    if len(samples) <= longest * rate:
        return [(0, len(samples))]
    frame, starts = round(FRAME * rate), [0]
    frames = len(samples) // frame
    power = np.square(samples[: frames * frame], dtype=np.float64).reshape(frames, frame).mean(1)
    width = round(PAUSE / FRAME)
    smooth = np.convolve(power, np.full(width, 1 / width), "same")
    while len(samples) - starts[-1] > longest * rate:
        last = starts[-1] // frame + int(longest / FRAME)
        first = last - int((1 - LEAST) * longest / FRAME)
        quietest = np.flatnonzero(smooth[first:last] <= smooth[first:last].min())
        starts.append((first + int(quietest[len(quietest) // 2])) * frame)
    return [*zip(starts, [*starts[1:], len(samples)], strict=True)]


def divide_words(transcripts: Sequence[Sequence[str]], words: Sequence[str]) -> list[list[str]]:
    """Divides the words of a sound among its windows, by what was transcribed in each.

    Words that match no transcribed one are divided evenly between those that do.

    Args:
        transcripts: What a network took the words of each window to be.
        words: Those of the whole sound.
    """
    transcribed = [_plain(word) for transcript in transcripts for word in transcript]
    matcher = SequenceMatcher(None, transcribed, [_plain(word) for word in words], autojunk=False)
    pairs = [(0, 0), *_matched(matcher), (len(transcribed), len(words))]
    ends = np.cumsum([len(transcript) for transcript in transcripts])
    at_transcribed, at_words = np.array(pairs).T
    cuts = np.interp(ends, at_transcribed, at_words).round().astype(int).tolist()
    return [list(words[first:last]) for first, last in zip([0, *cuts], [*cuts[:-1], len(words)])]


def _matched(matcher: SequenceMatcher[str]) -> Iterator[tuple[int, int]]:
    """Where each run of equal words starts in both texts, and where it ends."""
    for block in matcher.get_matching_blocks():
        yield block.a, block.b
        yield block.a + block.size, block.b + block.size


def _plain(word: str) -> str:
    """A word without case and punctuation."""
    return "".join(letter for letter in word.casefold() if letter.isalnum())
