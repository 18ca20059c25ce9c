"""How far apart the heads of every block are, a heat-map a block."""

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

__all__ = ["draw_divergence"]

PANELS = 6
"""Panels side by side, at most."""


@in_style
def draw_divergence(found: Divergence, title: str = "", top: float | None = None) -> Figure:
    """Draws the divergence between the heads of every block, a panel a layer, a row a chain.

    Args:
        found: The divergence.
        title: What was read, below the average that stands above all panels.
        top: End of the colour scale, where several figures share one; else the largest value.
    """
    chains = group_by_attention_type(found.summed)
    lines = [part for sites in chains.values() for part in _cut(sites)]
    columns = max([1, *map(len, lines)])
    figure = Picture(
        min(WIDTH, max(5.2, 1.4 + 1.7 * columns)),
        max(3.0, 0.7 + len(lines) * (WIDTH - 1.2) / max(columns, 4)),
    )
    axes = figure.subplots(max(1, len(lines)), columns, squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    end = largest_value(found.summed.values()) if top is None else top
    image = None
    for row, (chain, sites) in zip(axes, _named(chains)):
        for axis, site in zip(row, sites):
            image = _draw_pairs(axis, found, site, end)
        row[0].set_ylabel(f"{chain}\nhead")
    for axis in axes[-1]:
        axis.set_xlabel("head")
    write_title(figure, f"{_averages(found)}\n{title}")
    if image is None:
        write_notice(axes[0, 0], "no latent block that attends")
        return figure
    bar = figure.colorbar(image, ax=axes, shrink=0.9, aspect=30)
    bar.set_label("JSD, nats (0: alike)")
    return figure


def _draw_pairs(axis: Any, found: Divergence, site: str, top: float) -> Any:
    axis.set_axis_on()
    matrix = found.summed[site]
    image = draw_map(axis, matrix.numpy(), vmin=0, vmax=top, aspect="equal")
    axis.set_title(f"layer {layer_of(site)}: {format_number(pair_mean(matrix))}")
    ticks = range(0, len(matrix), math.ceil(len(matrix) / 4))
    axis.set_xticks(ticks)
    axis.set_yticks(ticks)
    return image


def _averages(found: Divergence) -> str:
    """The one number, and the same a query."""
    each = Divergence(found.normalised, found.normalised)
    summed, query = format_number(found.average()), format_number(each.average(), 3)
    if found.average() is None:
        return "How far apart the heads of a block are\nno block has two heads to compare"
    figures = f"JSD of heads, average: {summed} nats a sentence, {query} a query"
    return f"How far apart the heads of a block are\n{figures}"


def _named(chains: dict[str, list[str]]) -> Iterator[tuple[str, Sequence[str]]]:
    """The rows of the figure, each with the name of its chain."""
    return ((chain, part) for chain, sites in chains.items() for part in _cut(sites))


def _cut(sites: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(sites), PANELS):
        yield sites[start : start + PANELS]
