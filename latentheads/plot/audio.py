"""Log-mel frames above the attention of a block to them, for each token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from latentheads.analysis.samples import SampledWeights
from latentheads.corpora.speech.features import FRAME_SECONDS
from latentheads.layers.subsampler import FACTOR
from latentheads.plot.attention import (
    band_label,
    check_indices,
    describe_noise,
    draw_row,
    has_noise,
    select_row,
)
from latentheads.plot.canvas import WIDTH, Picture, draw_map, escape, write_title
from latentheads.plot.style import in_style

__all__ = ["draw_audio"]

POSITION = FACTOR * FRAME_SECONDS
"""Seconds of a position."""


@in_style
def draw_audio(
    frames: Float[np.ndarray, "frame bin"],
    drawn: SampledWeights,
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
    tokens = list(map(escape, tokens))
    mean, deviation, low, high = (
        np.nan_to_num(each[0, :, : len(tokens)].double().cpu().numpy())
        for each in (drawn.mean, drawn.deviation, drawn.low, drawn.high)
    )
    head = int(mean.max(-1).mean(-1).argmax()) if head is None else head
    check_indices("head", [head], len(mean))
    row = select_row(mean[[head]], deviation[[head]]) if row is None else row
    check_indices("row", [row], len(tokens))
    seconds = mean.shape[-1] * POSITION
    figure = Picture(max(WIDTH, 1 + 2.2 * seconds), 4.2 + 0.17 * len(tokens))
    heights = [1.6, 0.4 + 0.17 * len(tokens), 1.0]
    sound, maps, bars = figure.subplots(3, 1, sharex=True, height_ratios=heights)
    end = len(frames) * FRAME_SECONDS
    heard = (0.0, end, 0.0, float(frames.shape[1]))
    draw_map(sound, frames.T, origin="lower", extent=heard, cmap="magma")
    sound.set_ylabel("frequency (mel bin)")
    read = (0.0, seconds, len(tokens) - 0.5, -0.5)
    draw_map(maps, mean[head], extent=read, vmin=0)
    maps.set_yticks(range(len(tokens)), tokens)
    for edge in (row - 0.5, row + 0.5):
        maps.axhline(edge, color="black", linewidth=0.8)
    scale = f"white 0, darkest {mean[head].max():.2f}"
    maps.set_title(f"head {head}: mean weight ({scale})", loc="left")
    maps.set_ylabel("written")
    places = POSITION * (np.arange(mean.shape[-1]) + 0.5)
    noisy = has_noise(deviation[head])
    band = (low[head, row], high[head, row]) if noisy else None
    draw_row(bars, places, mean[head, row], band)
    bars.set_title(f"row “{tokens[row]}”: {band_label(noisy)}", loc="left")
    bars.set_xlabel("seconds")
    bars.set_ylabel("weight")
    write_title(figure, f"{title}\n{describe_noise(deviation[head])}")
    return figure
