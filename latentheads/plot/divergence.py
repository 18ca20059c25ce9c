"""Plots the divergence between the heads of every block, one heat map per block."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from matplotlib.figure import Figure

from latentheads.analysis.divergence import Divergence, pair_mean
from latentheads.names import layer_of
from latentheads.plot.canvas import (
    WIDTH,
    Picture,
    draw_map,
    format_number,
    group_by_attention_type,
    largest_value,
    write_notice,
    write_title,
)
from latentheads.plot.style import in_style

MAX_COLUMNS = 6
"""Maximum number of panels side by side."""


@in_style
def draw_divergence(divergence: Divergence, title: str = "", vmax: float | None = None) -> Figure:
    """Draws the divergence between heads, one panel per layer and one row per attention type.

    Args:
        divergence: The divergence.
        title: Second line of the title; the first has the average over all blocks.
        vmax: Upper limit of the colour scale, to share it between figures; by default the largest
            value.
    """
    groups = group_by_attention_type(divergence.summed)
    chunks = [chunk for sites in groups.values() for chunk in _split(sites)]
    columns = max([1, *map(len, chunks)])
    figure = Picture(
        min(WIDTH, max(5.2, 1.4 + 1.7 * columns)),
        max(3.0, 0.7 + len(chunks) * (WIDTH - 1.2) / max(columns, 4)),
    )
    axes = figure.subplots(max(1, len(chunks)), columns, squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    color_limit = largest_value(divergence.summed.values()) if vmax is None else vmax
    image = None
    for row, (attention_type, sites) in zip(axes, _make_rows(groups)):
        for axis, site in zip(row, sites):
            image = _draw_pairs(axis, divergence, site, color_limit)
        row[0].set_ylabel(f"{attention_type}\nhead")
    for axis in axes[-1]:
        axis.set_xlabel("head")
    write_title(figure, f"{_describe_average(divergence)}\n{title}")
    if image is None:
        write_notice(axes[0, 0], "no latent attention block")
        return figure
    bar = figure.colorbar(image, ax=axes, shrink=0.9, aspect=30)
    bar.set_label("JSD in nats (0: equal heads)")
    return figure


def _draw_pairs(axis: Any, divergence: Divergence, site: str, vmax: float) -> Any:
    axis.set_axis_on()
    matrix = divergence.summed[site]
    image = draw_map(axis, matrix.numpy(), vmin=0, vmax=vmax, aspect="equal")
    axis.set_title(f"layer {layer_of(site)}: {format_number(pair_mean(matrix))}")
    ticks = range(0, len(matrix), math.ceil(len(matrix) / 4))
    axis.set_xticks(ticks)
    axis.set_yticks(ticks)
    return image


def _describe_average(divergence: Divergence) -> str:
    """The average JSD per sentence and per query, for the title."""
    normalised = Divergence(divergence.normalised, divergence.normalised)
    summed, per_query = format_number(divergence.average()), format_number(normalised.average(), 3)
    if divergence.average() is None:
        return "Divergence between the heads of a block\nno block has two heads to compare"
    figures = f"average JSD: {summed} nats per sentence, {per_query} per query"
    return f"Divergence between the heads of a block\n{figures}"


def _make_rows(groups: dict[str, list[str]]) -> Iterator[tuple[str, Sequence[str]]]:
    """The rows of the figure, each with its attention type."""
    return (
        (attention_type, chunk)
        for attention_type, sites in groups.items()
        for chunk in _split(sites)
    )


def _split(sites: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(sites), MAX_COLUMNS):
        yield sites[start : start + MAX_COLUMNS]
