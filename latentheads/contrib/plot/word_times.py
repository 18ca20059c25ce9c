"""Word times of a sound: its spectrogram, words with intervals, and the heads that show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from latentheads.checks import check_instance
from latentheads.contrib.heads.alignment_heads import AlignmentHead, AlignmentHeads
from latentheads.contrib.heads.boundaries.chain import BoundaryTimes
from latentheads.contrib.heads.switch import label_head
from latentheads.contrib.plot.canvas import WIDTH, Picture, escape
from latentheads.contrib.plot.style import GOLD, GREEN, GREY, in_style

MOST_HEADS = 12
"""Most heads that are shown."""

LETTER = 0.012
"""Width of a letter of a word, as a share of the sound."""


@in_style
def draw_word_times(
    spectrogram: Float[np.ndarray, "band frame"],
    words: Sequence[str],
    starts: BoundaryTimes,
    heads: AlignmentHeads | Sequence[AlignmentHead],
    duration: float,
    truth: Sequence[float] = (),
    marked: Sequence[tuple[int, int]] = (),
) -> Picture:
    """Draws a sound, its words with the intervals of their starts, and the lags of heads.

    Args:
        spectrogram: Energy of each band, on any scale.
        words: The words.
        starts: When they start: ``starts`` of what ``align`` returns.
        heads: The alignment heads, or what their ``table`` returns.
        duration: Seconds of the sound.
        truth: When they truly start, if it is known.
        marked: Heads that are named in gold, such as those of another list.
    """
    check_instance("starts", starts, BoundaryTimes, "BoundaryTimes, as heads.align(...)['starts']")
    if isinstance(heads, AlignmentHeads):
        heads = heads.table()
    figure = Picture(WIDTH, 5.0)
    sound, lags = figure.subplots(2, 1, height_ratios=[1.15, 1])
    _draw_sound(sound, spectrogram, words, starts, duration, truth)
    _draw_lags(lags, heads[:MOST_HEADS], marked)
    return figure


def _draw_sound(
    axis: Any,
    spectrogram: Float[np.ndarray, "band frame"],
    words: Sequence[str],
    starts: BoundaryTimes,
    duration: float,
    truth: Sequence[float],
) -> None:
    bands = len(spectrogram)
    extent = (0, duration, 0, bands)
    axis.imshow(spectrogram, origin="lower", aspect="auto", extent=extent, cmap="magma")
    for low, high in zip(starts.low.tolist(), starts.high.tolist(), strict=True):
        axis.axvspan(low, high, color="white", alpha=0.35, linewidth=0)
    axis.vlines(starts.median.tolist(), 0, bands, color="white", linewidth=1.2)
    is_known = np.isfinite(np.array(truth, float))
    axis.scatter(
        np.array(truth, float)[is_known],
        np.full(is_known.sum(), 0.03 * bands),
        marker="^",
        s=22,
        color=GOLD,
        zorder=3,
        label="true start",
    )
    ends: list[float] = []  # seconds at which the last word of each line ends
    for word, start in zip(words, starts.median.tolist(), strict=True):
        line = next((line for line, end in enumerate(ends) if end <= start), len(ends))
        ends[line : line + 1] = [start + LETTER * (len(word) + 1) * duration]
        axis.annotate(
            escape(word),
            (start, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3 + 10 * line),
            textcoords="offset points",
            fontsize=8,
            annotation_clip=False,
        )
    axis.set(xlim=(0, duration), ylim=(0, bands), yticks=[])
    axis.set_xlabel("seconds")
    axis.set_ylabel("mel bands")
    axis.set_title("Start of each word: posterior median and interval", pad=6 + 10 * len(ends))
    axis.grid(visible=False)
    if is_known.any():
        axis.legend(loc="upper right", fontsize=7, frameon=True, facecolor="white")


def _draw_lags(
    axis: Any, heads: Sequence[AlignmentHead], marked: Sequence[tuple[int, int]]
) -> None:
    rows = np.arange(len(heads))[::-1]
    for row, head in zip(rows, heads, strict=True):
        half = 1000 * head.width / 2
        axis.plot(
            [1000 * head.lag - half, 1000 * head.lag + half],
            [row, row],
            color=GREEN,
            linewidth=5,
            alpha=max(0.15, head.probability),
            solid_capstyle="round",
        )
        axis.plot(1000 * head.lag, row, "o", color="white", markeredgecolor=GREEN, markersize=5)
        axis.annotate(
            f"{head.information[0]:.1f} nats, P = {head.probability:.2f}",
            (1, row),
            xycoords=("axes fraction", "data"),
            xytext=(4, 0),
            textcoords="offset points",
            fontsize=7,
            va="center",
            annotation_clip=False,
        )
    axis.axvline(0, color=GREY, linewidth=0.8)
    axis.set_yticks(rows, [label_head(*head.head) for head in heads], fontsize=7)
    gold_heads = {*map(tuple, marked)}  # a pair of a file is a list
    for tick, head in zip(axis.get_yticklabels(), heads, strict=True):
        if head.head in gold_heads:
            tick.set_color(GOLD)
            tick.set_fontweight("bold")
    axis.set_xlabel("lag of attention behind the start of the word, milliseconds")
    axis.set_title("Heads: median lag and middle half of the profile")
    axis.grid(visible=False, axis="y")
