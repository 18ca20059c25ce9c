"""Plots the mean attention weights of a block beside their standard deviation over samples."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from numpy.typing import NDArray

from latentheads.checks import check_list, check_number, check_within
from latentheads.contrib.heads.samples import BAND, NO_NOISE, SampledWeights
from latentheads.contrib.plot.canvas import (
    WIDTH,
    Picture,
    cell_inches,
    draw_map,
    frame_links,
    position_labels,
    shorten,
    write_title,
)
from latentheads.contrib.plot.style import BLUE, MEAN_CMAP, RED, STD_CMAP, in_style
from latentheads.metrics.alignment import Link

Numbers = NDArray[np.float64]

MAX_HEADS = 8
"""Maximum number of heads below each other."""

CELL = 0.17
"""Maximum size of a cell in inches."""
MAX_TOKEN = 20
"""Characters of a token that fit above the last panel."""


@in_style
def draw_weights(
    samples: SampledWeights,
    queries: Sequence[str],
    keys: Sequence[str],
    row: int | None = None,
    heads: Sequence[int] = (),
    title: str = "",
    links: Collection[Link] = (),
) -> Figure:
    """Draws the heads of a block on the first sentence: mean, deviation, and one row with bands.

    Args:
        samples: Statistics of the weights over samples.
        queries: Label of each query.
        keys: Label of each key.
        row: Index of the query shown with bands; by default the least certain one.
        heads: Indices of the heads; by default the first eight.
        title: Title of the figure.
        links: Gold links between keys and queries, framed.
    """
    size = (len(queries), len(keys))
    mean, deviation, low, high = (
        statistic[0, :, : size[0], : size[1]].double().cpu().numpy()
        for statistic in (samples.mean, samples.deviation, samples.low, samples.high)
    )
    active = samples.active[0].cpu().numpy()
    check_list("heads", heads)
    shown_heads = list(heads) or list(range(min(MAX_HEADS, len(mean))))
    check_indices("heads", shown_heads, len(mean))
    noise = deviation[shown_heads]
    row = select_row(mean[shown_heads], noise) if row is None else row
    check_indices("row", [row], size[0])
    height, width = (cell_inches(number, CELL) for number in size)
    figure = Picture(
        max(WIDTH, 1.2 + 3 * (0.3 + width * size[1])),
        2.2 + len(shown_heads) * max(1.0, 0.15 + height * size[0]),
    )
    means, deviations, bars = _make_columns(figure, len(shown_heads))
    for axes, values, colours, label in (
        (means, mean, MEAN_CMAP, "mean weight"),
        (deviations, deviation, STD_CMAP, "standard deviation over samples"),
    ):
        _draw_maps(figure, axes, values[shown_heads], colours, label, row)
    for axis in means:
        frame_links(axis, links)
    positions, has_band = np.arange(size[1], dtype=float), has_noise(noise)
    for axis, head in zip(bars, shown_heads):
        band = (low[head, row], high[head, row]) if has_band else None
        draw_row(axis, positions, mean[head, row], band)
        axis.set_xlim(-0.5, size[1] - 0.5)
        for key in sorted(key for key, query in links if query == row):
            axis.axvspan(key - 0.5, key + 0.5, color="0.87", zorder=0)
        axis.set_ylim(0, min(1.0, 1.1 * _scale_limit(high[shown_heads, row])))
    labels = position_labels(queries, height), position_labels(keys, width)
    _label_axes((means, deviations, bars), *labels)
    for axis, head in zip(means, shown_heads):
        axis.set_ylabel(f"head {head}{_active_label(active[head])}\nquery")
    row_name = shorten(queries[row], MAX_TOKEN)
    bars[0].set_title(f"row “{row_name}”:\n{band_label(has_band)}", loc="right")
    links_note = "\nFramed, and grey in the row: gold alignment." if links else ""
    write_title(figure, f"{title}\n{describe_noise(noise, active[shown_heads])}{links_note}")
    return figure


def draw_row(
    axis: Any, positions: Numbers, mean: Numbers, band: tuple[Numbers, Numbers] | None
) -> None:
    """Draws one query: a bar for the mean weight of each key, and the band of the samples."""
    width = 0.8 * (positions[1] - positions[0] if len(positions) > 1 else 1)
    axis.bar(positions, mean, color=BLUE, alpha=0.55, width=width)
    if band is not None:
        axis.vlines(positions, *band, color=RED, linewidth=2.2)


def select_row(
    mean: Float[Numbers, "head query key"], deviation: Float[Numbers, "head query key"]
) -> int:
    """Selects the least certain query: largest deviation or, without noise, lowest maximum."""
    if not has_noise(deviation):
        return int(np.nan_to_num(mean).max(-1).mean(0).argmin())
    return int(np.nan_to_num(deviation).mean((0, 2)).argmax())


def has_noise(deviation: Numbers) -> bool:
    """Whether samples differ by more than rounding errors."""
    return _max_value(deviation) >= NO_NOISE


def band_label(has_band: bool) -> str:
    """Describes the bars and, if samples differ, the bands."""
    quantiles = " to ".join(f"{100 * end:.0f}" for end in BAND)
    return f"mean, {quantiles} % of samples" if has_band else "its weights"


def describe_noise(deviation: Numbers, active: Float[Numbers, " head"]) -> str:
    """Describes the deviation over samples, and how often heads are active, in a line."""
    noise = (
        f"A weight varies by up to {_max_value(deviation):.2f} (standard deviation over samples)."
    )
    shares = active[(active > 0) & (active < 1)]
    if not shares.size:
        return (
            noise if has_noise(deviation) else "These heads have no noise: all samples are equal."
        )
    ends = dict.fromkeys(f"{100 * share:.0f}" for share in (shares.min(), shares.max()))
    which = f"Active in {' to '.join(ends)} % of the samples; the maps are of these."
    return f"{which} {noise if has_noise(deviation) else 'There the weights are equal.'}"


def _active_label(share: float) -> str:
    """A line with the share of samples in which a head is active, unless it is in all."""
    if share == 1:
        return ""
    return f"\nactive: {100 * share:.0f} %" if share else "\ninactive"


def _draw_maps(
    figure: Figure,
    axes: Sequence[Any],
    values: Float[np.ndarray, "head query key"],
    colours: str,
    label: str,
    row: int,
) -> None:
    """Draws a column of maps of a statistic on one scale, with lines around a row."""
    vmax = _scale_limit(values)
    images = [
        draw_map(axis, of_head, vmin=0, vmax=vmax, cmap=colours)
        for axis, of_head in zip(axes, values)
    ]
    for axis in axes:
        for edge in (row - 0.5, row + 0.5):
            axis.axhline(edge, color="black", linewidth=0.8)
    pad = 0.2 / figure.get_figheight()
    bar = figure.colorbar(images[0], ax=axes, location="top", aspect=18, shrink=0.9, pad=pad)
    bar.set_label(label)


def _make_columns(figure: Picture, heads: int) -> list[list[Any]]:
    """Makes the axes of means, of deviations and of rows, each from the first to the last head."""
    grid = figure.add_gridspec(heads, 3)
    return [[figure.add_subplot(grid[head, side]) for head in range(heads)] for side in range(3)]


def _max_value(values: Numbers) -> float:
    """The largest value; inactive heads are NaN."""
    return float(np.nan_to_num(values).max())


def _scale_limit(values: Numbers) -> float:
    """The upper limit of a scale from 0: 1 without noise, or without an active head."""
    largest = _max_value(values)
    return largest if largest >= NO_NOISE else 1.0


def check_indices(name: str, indices: Iterable[int], number: int) -> None:
    """Raises a ValueError for indices of rows or heads that are out of range."""
    for index in indices:
        check_number(name, index, whole=True)
        check_within(name, index, 0, number - 1)


def _label_axes(
    columns: Sequence[Sequence[Any]],
    queries: tuple[range, list[str]],
    keys: tuple[range, list[str]],
) -> None:
    """Labels queries on the left and keys below."""
    means, deviations, bars = columns
    for axes in columns:
        for axis in axes:
            axis.set_xticks(*keys, rotation=90)
            axis.tick_params(axis="x", labelbottom=axis is axes[-1])
    for axis in means:
        axis.set_yticks(*queries)
    for axis in deviations:
        axis.set_yticks(queries[0], [])
    for axis in (means[-1], deviations[-1], bars[-1]):
        axis.set_xlabel("key")
    bars[0].set_ylabel("weight")
