"""Sounds longer than a network takes: cut where they are quiet, with the words of each part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

import numpy as np
from jaxtyping import Bool, Float

FRAME = 0.02
"""Seconds whose power is one number."""

WIDTH = 0.3
"""Seconds over which power is averaged."""

LEAST = 0.5
"""Share of the longest window before which none is cut, or there would be many short ones."""

PAUSE = 2.0
"""Seconds of low averaged power in the shortest pause that is left out, which lasts .3 longer:
networks may put the word after it before it."""

QUIET = 1e-4
"""Power of a pause, as a share of that of the loudest hundredth of the sound: 40 dB less."""

MARGIN = 0.3
"""Seconds of low averaged power that a window keeps at each end: some .4 of a pause."""


def split_at_pauses(
    samples: Float[np.ndarray, " sample"], rate: int, longest: float
) -> list[tuple[int, int]]:
    """The first sample of each window of a sound, and the one after its last.

    Pauses of 2.3 seconds are left out. A stretch between them that is too long is cut in the
    quietest place of the second half of each window.

    Args:
        samples: The sound.
        rate: Samples in a second.
        longest: Seconds of the longest window.
    """
    frame = round(FRAME * rate)
    frames = len(samples) // frame
    if len(samples) <= min(longest, PAUSE) * rate:
        return [(0, len(samples))]
    # a variance: an offset of all samples is not loud
    whole = np.asarray(samples[: frames * frame]).reshape(frames, frame)
    power = whole.var(1, dtype=np.float64)
    width = round(WIDTH / FRAME)
    smooth = np.convolve(power, np.full(width, 1 / width), "same")
    windows = []
    for first, last in _find_stretches(smooth <= QUIET * np.quantile(power, 0.99)):
        while last - first > int(longest / FRAME):
            end = first + int(longest / FRAME)
            half = end - int((1 - LEAST) * longest / FRAME)
            # not within the pause that a stretch ends with, or a window would be silent
            places = smooth[half : min(end, last - 2 * round(MARGIN / FRAME))]
            quietest = np.flatnonzero(places <= places.min())
            windows.append((first, half + int(quietest[len(quietest) // 2])))
            first = windows[-1][1]
        windows.append((first, last))
    ends = [last * frame for _, last in windows]
    if windows[-1][1] == frames and len(samples) - windows[-1][0] * frame <= longest * rate:
        ends[-1] = len(samples)  # less than a frame is left
    return [(first * frame, end) for (first, _), end in zip(windows, ends, strict=True)]


def _find_stretches(is_quiet: Bool[np.ndarray, " frame"]) -> list[tuple[int, int]]:
    """Stretches of frames between long pauses, with a margin of these; all frames if none is."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], is_quiet, [False]]).astype(int)))
    pauses = edges.reshape(-1, 2)
    margin, total = round(MARGIN / FRAME), len(is_quiet)
    pauses = pauses[pauses[:, 1] - pauses[:, 0] >= PAUSE / FRAME]
    starts = [0, *(int(last) - margin for _, last in pauses)]
    ends = [*(int(first) + margin for first, _ in pauses), total]
    # at an end of the sound what is shorter than half a margin is a click
    stretches = [(a, b) for a, b in zip(starts, ends, strict=True) if b - a > 2 * margin]
    return stretches or [(0, total)]


def divide_words(transcripts: Sequence[Sequence[str]], words: Sequence[str]) -> list[list[str]]:
    """Divides the words of a sound among its windows, by what was transcribed in each.

    Words that match no transcribed one are divided evenly between those that do.

    Args:
        transcripts: What a network took the words of each window to be; empty texts for words that
            are not known.
        words: Those of the whole sound.
    """
    # what is plain punctuation matches nothing, as an unknown word
    transcribed = [_plain(word) or "?" for transcript in transcripts for word in transcript]
    matcher = SequenceMatcher(None, transcribed, [_plain(word) for word in words], autojunk=False)
    pairs = [(0, 0), *_matched(matcher), (len(transcribed), len(words))]
    ends = np.cumsum([len(transcript) for transcript in transcripts])
    at_transcribed, at_words = np.array(pairs).T
    # words that no transcript has may stand exactly at an end: half of them belong to each window
    last = np.interp(ends, at_transcribed, at_words)
    first = np.interp(-ends, -at_transcribed[::-1], at_words[::-1])
    cuts = np.floor((first + last + 1) / 2).astype(int).tolist()
    return [list(words[first:last]) for first, last in zip([0, *cuts], [*cuts[:-1], len(words)])]


def _matched(matcher: SequenceMatcher[str]) -> Iterator[tuple[int, int]]:
    """Where each run of equal words starts in both texts, and where it ends."""
    for block in matcher.get_matching_blocks():
        yield block.a, block.b
        yield block.a + block.size, block.b + block.size


def _plain(word: str) -> str:
    """A word without case and punctuation."""
    return "".join(letter for letter in word.casefold() if letter.isalnum())
