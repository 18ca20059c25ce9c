"""What is heard above where a block looks for each token: log-mel frames over attention in time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from numpy.typing import NDArray

from latentheads.corpora.speech.features import FRAME_SECONDS
from latentheads.layers.subsampler import FACTOR
from latentheads.plot.canvas import Picture, write_title
from latentheads.reading.draws import BAND, DrawnWeights

__all__ = ["draw_sound"]

MEAN, BAND_COLOUR = "#3b6fb6", "#d98032"
POSITION = FACTOR * FRAME_SECONDS
"""Seconds of a position."""


def draw_sound(
    frames: Float[NDArray[Any], "frame bin"],
    drawn: DrawnWeights,
    tokens: Sequence[str],
    head: int | None = None,
    row: int | None = None,
    title: str = "",
) -> Figure:
    """Draws frames, and below them in the same time a head that reads them.

    Args:
        frames: What is heard, normalised.
        drawn: Weights of a block that reads it, under several draws; of the first sentence.
        tokens: What is written, a token a query.
        head: Which; when not given, the one whose mean weights are surest.
        row: The query that is shown with bands; when not given, the one least sure.
        title: What was heard.
    """
    mean, deviation, low, high = (
        np.nan_to_num(each[0, :, : len(tokens)].double().cpu().numpy())
        for each in (drawn.mean, drawn.deviation, drawn.low, drawn.high)
    )
    head = int(mean.max(-1).mean(-1).argmax()) if head is None else head
    _check_place("head", head, len(mean))
    row = int(deviation[head].mean(-1).argmax()) if row is None else row
    _check_place("row", row, len(tokens))
    seconds = mean.shape[-1] * POSITION
    figure = Picture(max(6.0, 1 + 2.2 * seconds), 4.4 + 0.15 * len(tokens))
    heights = [1.6, 0.4 + 0.15 * len(tokens), 1.0]
    sound, maps, bars = figure.subplots(3, 1, sharex=True, height_ratios=heights)
    end = len(frames) * FRAME_SECONDS
    heard = (0.0, end, 0.0, float(frames.shape[1]))
    sound.imshow(frames.T, origin="lower", aspect="auto", extent=heard, cmap="magma")
    sound.set_ylabel("log-mel bin", fontsize=8)
    read = (0.0, seconds, len(tokens) - 0.5, -0.5)
    maps.imshow(mean[head], aspect="auto", extent=read, cmap="Blues", vmin=0)
    maps.set_yticks(range(len(tokens)), tokens)
    maps.axhline(row - 0.5, color="black", linewidth=0.6)
    maps.axhline(row + 0.5, color="black", linewidth=0.6)
    maps.set_title(f"head {head}: mean weight", fontsize=8, loc="left")
    places = POSITION * (np.arange(mean.shape[-1]) + 0.5)
    bars.bar(places, mean[head, row], width=0.8 * POSITION, color=MEAN, alpha=0.6)
    bars.vlines(places, low[head, row], high[head, row], color=BAND_COLOUR, linewidth=2)
    ends = " to ".join(f"{100 * share:.0f}" for share in BAND)
    bars.set_title(f"row “{tokens[row]}”: mean, {ends} % of draws", fontsize=8, loc="left")
    bars.set_xlabel("seconds", fontsize=8)
    bars.set_ylabel("weight", fontsize=8)
    for axis in (sound, maps, bars):
        axis.tick_params(labelsize=7)
    write_title(figure, title)
    return figure


def _check_place(name: str, place: int, number: int) -> None:
    if not 0 <= place < number:
        raise ValueError(f"{name} must lie in 0 ... {number - 1}, got {place}")
