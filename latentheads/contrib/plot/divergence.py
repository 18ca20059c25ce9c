"""Plots the divergence between the heads of every block, one heat map per block."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from latentheads.contrib.heads.divergence import Divergence, pair_mean
from latentheads.contrib.plot.canvas import (
    WIDTH,
    Picture,
    draw_map,
    format_number,
    group_by_attention_type,
    largest_value,
    write_notice,
    write_title,
)
from latentheads.contrib.plot.style import in_style
from latentheads.names import attention_type_of, layer_of

MAX_COLUMNS = 6
"""Maximum number of panels side by side."""

NO_PAIRS = "no block has two heads to compare"

NARROWEST, LARGEST = 5.2, 2.0
"""Minimum width of the figure, which its title needs, and maximum side of a panel, in inches."""


@in_style
def draw_divergence(divergence: Divergence, title: str = "", vmax: float | None = None) -> Figure:
    """Draws the divergence between heads, one panel per block.

    Attention types have a row each if they have as many layers each; otherwise panels follow each
    other, so that the figure is filled.

    Args:
        divergence: The divergence.
        title: Second line of the title; the first has the average over all blocks.
        vmax: Upper limit of the colour scale, to share it between figures; by default the largest
            value.
    """
    groups = group_by_attention_type(divergence.summed)
    sites = [site for group in groups.values() for site in group]
    columns = _count_columns([len(group) for group in groups.values()])
    rows = max(1, math.ceil(len(sites) / columns))
    width = min(WIDTH, max(NARROWEST, 1.5 + 1.8 * columns))
    side = min(LARGEST, (width - 1.5) / columns - 0.3)
    figure = Picture(width, 1.0 + rows * (side + 0.62))
    figure.set_layout_engine("compressed")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat[len(sites) :]:
        axis.set_axis_off()
    write_title(figure, f"{_describe_average(divergence)}\n{title}")
    if not sites:
        write_notice(axes[0, 0], "no latent attention block")
        return figure
    color_limit = largest_value(divergence.summed.values()) if vmax is None else vmax
    names = ["slot" if site in divergence.slots else "head" for site in sites]
    differ = len({*names}) > 1
    for index, (axis, site, name) in enumerate(zip(axes.flat, sites, names)):
        image = _draw_pairs(axis, divergence, site, color_limit)
        axis.set_ylabel(name if differ or index % columns == 0 else "")
        axis.set_xlabel(name if differ or index >= len(sites) - columns else "")
    bar = figure.colorbar(image, ax=axes, shrink=0.9, aspect=20)
    bar.set_label("JSD, nats\n(0: equal heads)")
    return figure


def _count_columns(sizes: Sequence[int]) -> int:
    """The number of panels side by side, for the number of blocks of each attention type."""
    if len({*sizes}) == 1 and 1 < sizes[0] <= MAX_COLUMNS:
        return sizes[0]
    rows = max(1, math.ceil(sum(sizes) / MAX_COLUMNS))
    return max(1, math.ceil(sum(sizes) / rows))


def _draw_pairs(axis: Any, divergence: Divergence, site: str, vmax: float) -> Any:
    matrix = divergence.summed[site]
    image = draw_map(axis, matrix.numpy(), vmin=0, vmax=vmax, aspect="equal")
    mean = format_number(pair_mean(matrix))
    axis.set_title(f"{attention_type_of(site)}\nlayer {layer_of(site)}: {mean}")
    ticks = range(0, len(matrix), math.ceil(len(matrix) / 4))
    axis.set_xticks(ticks)
    axis.set_yticks(ticks)
    return image


def _describe_average(divergence: Divergence) -> str:
    """The average JSD per sentence and per query, for the title."""
    normalised = Divergence(divergence.normalised, divergence.normalised)
    summed, per_query = format_number(divergence.average()), format_number(normalised.average(), 3)
    if divergence.average() is None:
        return f"Divergence between the heads of a block\n{NO_PAIRS}"
    figures = f"average JSD: {summed} nats per sentence, {per_query} per query"
    note = "\nA slot has the head that the sentence's task selects." * bool(divergence.slots)
    return f"Divergence between the heads of a block\n{figures}{note}"
