"""How sure a guide is of its heads: mean weights beside their standard deviation over draws."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from numpy.typing import NDArray

from latentheads.analysis.samples import BAND, NO_NOISE, SampledWeights
from latentheads.checks import check_number
from latentheads.metrics.alignment import Link
from latentheads.plot.canvas import WIDTH, Picture, draw_map, escape, frame_links, write_title
from latentheads.plot.style import BLUE, MEAN_CMAP, RED, STD_CMAP, in_style
from latentheads.values import shown as said

__all__ = [
    "band_label",
    "check_indices",
    "describe_noise",
    "draw_row",
    "draw_weights",
    "has_noise",
    "select_row",
]

Numbers = NDArray[np.float64]

MOST = 8
"""Heads below each other, at most."""

CELL = 0.17
"""Inches of a cell, at least."""


@in_style
def draw_weights(
    drawn: SampledWeights,
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
    queries, keys = list(map(escape, queries)), list(map(escape, keys))
    size = (len(queries), len(keys))
    mean, deviation, low, high = (
        each[0, :, : size[0], : size[1]].double().cpu().numpy()
        for each in (drawn.mean, drawn.deviation, drawn.low, drawn.high)
    )
    row = select_row(mean, deviation) if row is None else row
    check_indices("row", [row], size[0])
    check_indices("heads", heads, len(mean))
    shown = list(heads) or list(range(min(MOST, len(mean))))
    width = max(WIDTH, 1.2 + 3 * (0.3 + CELL * size[1]))
    figure = Picture(width, 2.2 + len(shown) * max(1.0, 0.15 + CELL * size[0]))
    means, deviations, bars = _make_columns(figure, len(shown))
    for axes, values, colours, label in (
        (means, mean, MEAN_CMAP, "mean weight"),
        (deviations, deviation, STD_CMAP, "standard deviation over draws"),
    ):
        top = _find_top(values[shown])
        top = 1.0 if values is deviation and top < NO_NOISE else top
        images = [
            draw_map(axis, values[head], vmin=0, vmax=top, cmap=colours)
            for axis, head in zip(axes, shown)
        ]
        for axis in axes:
            for edge in (row - 0.5, row + 0.5):
                axis.axhline(edge, color="black", linewidth=0.8)
            frame_links(axis, links if values is mean else ())
        bar = figure.colorbar(images[0], ax=axes, location="top", aspect=18, shrink=0.9)
        bar.set_label(label)
    places, noisy = np.arange(size[1], dtype=float), has_noise(deviation)
    for axis, head in zip(bars, shown):
        band = (low[head, row], high[head, row]) if noisy else None
        draw_row(axis, places, mean[head, row], band)
        axis.set_xlim(-0.5, size[1] - 0.5)
        for key in sorted(key for key, query in links if query == row):
            axis.axvspan(key - 0.5, key + 0.5, color="0.87", zorder=0)
        axis.set_ylim(0, min(1.0, 1.1 * _find_top(high[shown, row])))
    _name_sides((means, deviations, bars), queries, keys, shown)
    bars[0].set_title(f"row “{queries[row]}”:\n{band_label(noisy)}", loc="left")
    framed = "\nFramed, and grey in the row: the true alignment." if links else ""
    write_title(figure, f"{title}\n{describe_noise(deviation)}{framed}")
    return figure


def draw_row(
    axis: Any, places: Numbers, mean: Numbers, band: tuple[Numbers, Numbers] | None
) -> None:
    """Draws one query: a bar a key for the mean, and around it the band of draws that differ."""
    width = 0.8 * (places[1] - places[0] if len(places) > 1 else 1)
    axis.bar(places, mean, color=BLUE, alpha=0.55, width=width)
    if band is not None:
        axis.vlines(places, *band, color=RED, linewidth=2.2)


def select_row(
    mean: Float[Numbers, "head query key"], deviation: Float[Numbers, "head query key"]
) -> int:
    """The query least sure: it varies most over the draws or, without noise, spreads most."""
    if not has_noise(deviation):
        return int(np.nan_to_num(mean, nan=1.0).max(-1).mean(0).argmin())
    return int(np.nan_to_num(deviation).mean((0, 2)).argmax())


def has_noise(deviation: Numbers) -> bool:
    """Whether draws differ by more than rounding."""
    return _find_top(deviation) >= NO_NOISE


def band_label(noisy: bool) -> str:
    """The legend of the bars and, where draws differ, of the bands."""
    ends = " to ".join(f"{100 * end:.0f}" for end in BAND)
    return f"mean, {ends} % of draws" if noisy else "its weights"


def describe_noise(deviation: Numbers) -> str:
    """How far the draws lie apart, in a sentence."""
    if not has_noise(deviation):
        return "These heads carry no noise: every draw is the same."
    return f"A weight varies by up to {_find_top(deviation):.2f} (standard deviation over draws)."


def _make_columns(figure: Picture, heads: int) -> list[list[Any]]:
    """The axes of means, of deviations and of rows, each from the first head to the last."""
    grid = figure.add_gridspec(heads, 3)
    return [[figure.add_subplot(grid[head, side]) for head in range(heads)] for side in range(3)]


def _find_top(values: Numbers) -> float:
    """The end of a scale from 0; silent heads are NaN."""
    return max(1e-9, float(np.nan_to_num(values).max()))


def check_indices(name: str, places: Iterable[int], number: int) -> None:
    """Refuses rows or heads that are not among those there are."""
    if isinstance(places, str) or not isinstance(places, Iterable):
        raise ValueError(f"{name} must be a list of places, got {said(places)}")
    for place in places:
        check_number(name, place, whole=True)
        if not 0 <= place < number:
            raise ValueError(f"{name} must lie in 0 ... {number - 1}, got {place}")


def _name_sides(
    columns: Sequence[Sequence[Any]],
    queries: Sequence[str],
    keys: Sequence[str],
    heads: Sequence[int],
) -> None:
    """Names what stands at queries, left, and at keys, below."""
    means, deviations, bars = columns
    for axes in columns:
        for axis in axes:
            axis.set_xticks(range(len(keys)), keys, rotation=90)
            axis.tick_params(axis="x", labelbottom=axis is axes[-1])
    for axis in (*means, *deviations):
        axis.set_yticks(range(len(queries)), queries if axis in means else [])
    for axis, head in zip(means, heads):
        axis.set_ylabel(f"head {head}\nquery")
    for axis in (means[-1], deviations[-1], bars[-1]):
        axis.set_xlabel("key")
    bars[0].set_ylabel("weight")
