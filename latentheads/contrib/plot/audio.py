"""Plots log-mel frames above the attention weights of a block over them, one row per token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from latentheads.contrib.heads.samples import SampledWeights
from latentheads.contrib.plot.attention import (
    band_label,
    check_indices,
    describe_noise,
    draw_row,
    has_noise,
    select_row,
)
from latentheads.contrib.plot.canvas import (
    MAP_INCHES,
    MAX_LABEL,
    WIDTH,
    Picture,
    cell_inches,
    draw_map,
    position_labels,
    shorten,
    write_title,
)
from latentheads.contrib.plot.style import in_style
from latentheads.contrib.speech.features import FRAME_SECONDS
from latentheads.contrib.speech.subsampler import FACTOR

POSITION = FACTOR * FRAME_SECONDS
"""Seconds of a position."""


@in_style
def draw_audio(
    frames: Float[np.ndarray, "frame bin"],
    samples: SampledWeights,
    tokens: Sequence[str],
    head: int | None = None,
    row: int | None = None,
    title: str = "",
) -> Figure:
    """Draws audio frames, and below them the weights of one head on the same time axis.

    Args:
        frames: The normalised log-mel frames.
        samples: Statistics of the weights of a block over them; of the first sentence.
        tokens: Label of the token at each query.
        head: Index of the head; by default the one with the most concentrated mean weights.
        row: Index of the query shown with bands; by default the least certain one.
        title: Title of the figure.
    """
    mean, deviation, low, high = (
        np.nan_to_num(values[0, :, : len(tokens)].double().cpu().numpy())
        for values in (samples.mean, samples.deviation, samples.low, samples.high)
    )
    head = int(mean.max(-1).mean(-1).argmax()) if head is None else head
    check_indices("head", [head], len(mean))
    row = select_row(mean[[head]], deviation[[head]]) if row is None else row
    check_indices("row", [row], len(tokens))
    seconds = mean.shape[-1] * POSITION
    row_height = cell_inches(len(tokens), 0.17)
    map_height = row_height * len(tokens)
    figure = Picture(max(WIDTH, 1 + min(2.2 * seconds, 3 * MAP_INCHES)), 4.2 + map_height)
    heights = [1.6, 0.4 + map_height, 1.0]
    spectrogram, maps, bars = figure.subplots(3, 1, sharex=True, height_ratios=heights)
    duration = len(frames) * FRAME_SECONDS
    audio_extent = (0.0, duration, 0.0, float(frames.shape[1]))
    draw_map(spectrogram, frames.T, origin="lower", extent=audio_extent, cmap="magma")
    spectrogram.set_ylabel("frequency (mel bin)")
    map_extent = (0.0, seconds, len(tokens) - 0.5, -0.5)
    draw_map(maps, mean[head], extent=map_extent, vmin=0)
    maps.set_yticks(*position_labels(tokens, row_height))
    for edge in (row - 0.5, row + 0.5):
        maps.axhline(edge, color="black", linewidth=0.8)
    scale = f"white 0, darkest {mean[head].max():.2f}"
    maps.set_title(f"head {head}: mean weight ({scale})", loc="left")
    maps.set_ylabel("token")
    seconds_of_positions = POSITION * (np.arange(mean.shape[-1]) + 0.5)
    active = samples.active[0, [head]].cpu().numpy()
    has_band = has_noise(deviation[head])
    band = (low[head, row], high[head, row]) if has_band else None
    draw_row(bars, seconds_of_positions, mean[head, row], band)
    name = shorten(tokens[row], MAX_LABEL)
    bars.set_title(f"row “{name}”: {band_label(has_band)}", loc="left")
    bars.set_xlim(0, seconds)  # a single bar is wider
    bars.set_xlabel("seconds")
    bars.set_ylabel("weight")
    write_title(figure, f"{title}\n{describe_noise(deviation[head], active)}")
    return figure
