"""How sure a guide is of its heads: mean weights beside their standard deviation over draws."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from numpy.typing import NDArray

from latentheads.metrics.alignment import Link
from latentheads.plot.canvas import Picture, frame_links, write_title
from latentheads.reading.draws import BAND, DrawnWeights

__all__ = ["draw_weights"]

Numbers = NDArray[np.float64]

MOST = 8
"""Heads side by side, at most."""
MEAN, BAND_COLOUR = "#3b6fb6", "#d98032"


def draw_weights(
    drawn: DrawnWeights,
    queries: Sequence[str],
    keys: Sequence[str],
    row: int | None = None,
    heads: Sequence[int] = (),
    title: str = "",
    links: Collection[Link] = (),
) -> Figure:
    """Draws the heads of a block on its first sentence: mean, deviation, and one row with bands.

    Args:
        drawn: The weights under several draws.
        queries: What stands at each query.
        keys: What stands at each key.
        row: The query that is shown with bands; when not given, the one least sure.
        heads: The heads; when not given, the first eight at most.
        title: What was read.
        links: Gold links between keys and queries, which are framed.
    """
    size = (len(queries), len(keys))
    mean, deviation, low, high = (
        each[0, :, : size[0], : size[1]].double().cpu().numpy()
        for each in (drawn.mean, drawn.deviation, drawn.low, drawn.high)
    )
    row = _find_row(deviation) if row is None else row
    shown = list(heads) or list(range(min(MOST, len(mean))))
    _check_places(row, shown, size[0], len(mean))
    heights = [0.4 + 0.17 * size[0]] * 2 + [1.2]
    width = 1.5 + len(shown) * (0.6 + 0.17 * size[1])
    figure = Picture(max(6.0, width), 2.6 + sum(heights))
    axes = figure.subplots(3, len(shown), squeeze=False, height_ratios=heights)
    scales = (
        (mean, "Blues", "mean weight"),
        (deviation, "Oranges", "standard deviation"),
    )
    for line, (values, colours, label) in zip(axes, scales):
        top, image = _find_top(values[shown]), ScalarMappable()
        for axis, head in zip(line, shown):
            image = axis.imshow(values[head], vmin=0, vmax=top, cmap=colours, aspect="auto")
            axis.axhline(row - 0.5, color="black", linewidth=0.6)
            axis.axhline(row + 0.5, color="black", linewidth=0.6)
            frame_links(axis, links if values is mean else ())
            axis.set_title(f"head {head}: {label}" if head == shown[0] else f"head {head}")
        bar = figure.colorbar(image, ax=line, aspect=12, shrink=0.95)
        bar.set_label(label, fontsize=8)
        bar.ax.tick_params(labelsize=7)
    for axis, head in zip(axes[2], shown):
        _draw_row(axis, mean[head, row], low[head, row], high[head, row])
        for key in sorted(key for key, query in links if query == row):
            axis.axvspan(key - 0.5, key + 0.5, color="0.85", zorder=0)
        axis.set_ylim(0, min(1.0, 1.1 * _find_top(high[shown, row])))
    _name_sides(axes, queries, keys, row)
    framed = "\nFramed, and grey below: the true alignment." if links else ""
    write_title(figure, f"{title}\n{_tell_noise(deviation)}{framed}")
    return figure


def _find_row(deviation: Numbers) -> int:
    """The query whose weights vary most over the draws."""
    return int(np.nan_to_num(deviation).mean((0, 2)).argmax())


def _find_top(values: Numbers) -> float:
    """The end of a scale from 0; silent heads are NaN."""
    return max(1e-9, float(np.nan_to_num(values).max()))


def _check_places(row: int, heads: Sequence[int], queries: int, number: int) -> None:
    if not 0 <= row < queries:
        raise ValueError(f"row must lie in 0 ... {queries - 1}, got {row}")
    for head in heads:
        if not 0 <= head < number:
            raise ValueError(f"heads must lie in 0 ... {number - 1}, got {head}")


def _draw_row(axis: Any, mean: Numbers, low: Numbers, high: Numbers) -> None:
    """A bar a key for the mean, and the band of the draws around it."""
    places = np.arange(len(mean))
    axis.bar(places, mean, color=MEAN, alpha=0.6, width=0.8)
    axis.vlines(places, low, high, color=BAND_COLOUR, linewidth=2)
    axis.set_xlim(-0.5, len(mean) - 0.5)


def _name_sides(axes: Any, queries: Sequence[str], keys: Sequence[str], row: int) -> None:
    """Names what stands at queries, left, and at keys, below."""
    for axis in axes.flat:
        axis.title.set_fontsize(8)
        axis.set_xticks(range(len(keys)), [])
        axis.tick_params(labelsize=7)
    for axis in axes[2]:
        axis.set_xticklabels(keys, rotation=90)
    for line in axes[:2]:
        for axis in line:
            axis.set_yticks(range(len(queries)), queries if axis is line[0] else [])
    for axis in axes[2][1:]:
        axis.set_yticklabels([])
    ends = " to ".join(f"{100 * end:.0f}" for end in BAND)
    axes[2][0].set_title(f"row “{queries[row]}”: mean, {ends} % of draws", fontsize=8, loc="left")
    axes[0][0].set_ylabel("query", fontsize=8)
    axes[1][0].set_ylabel("query", fontsize=8)
    axes[2][0].set_ylabel("weight", fontsize=8)
    for axis in axes[2]:
        axis.set_xlabel("key", fontsize=8)


def _tell_noise(deviation: Numbers) -> str:
    top = _find_top(deviation)
    if top < 1e-6:
        return "These heads carry no noise: every draw is the same."
    return f"A weight varies by up to {top:.2f} (standard deviation over draws)."
