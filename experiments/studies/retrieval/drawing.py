"""Plots measures of an encoder's heads, and its accuracy under noise and without some heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from latentheads.contrib.plot.canvas import (
    WIDTH,
    Picture,
    add_legend,
    colour_scale,
    draw_map,
    escape,
    pad_rows,
    values_with_intervals,
    write_title,
)
from latentheads.contrib.plot.style import MARKERS, REFERENCE_LINE, distinct_colours, in_style
from latentheads.metrics.seeds import spread, spread_columns

Rows = Sequence[Mapping[str, Any]]
Styles = Mapping[str, tuple[str, str]]

SHIFT = 0.01
"""Horizontal shift between rankings, as a share of all heads, so that intervals do not overlap."""


@in_style
def draw_encoder(
    heads: Rows, noise: Rows, removal: Rows, measures: Mapping[str, str], title: str = ""
) -> Figure:
    """Draws a map of each measure above, accuracy under noise and after removal of heads below.

    Rows are those of the tables that ``paraphrase.py`` writes, concatenated over seeds. The figure
    shows means over seeds with 95 % intervals by Student's t.

    Args:
        heads: ``block``, ``head`` and the measures of every head.
        noise: ``allocation``, ``price`` (the KL weight), ``kl`` and ``hits``, the share of correct
            answers.
        removal: ``by``, the ranking; ``heads`` left, including all; ``hits``; log p in ``nats``;
            ``seed``, if there are several.
        measures: The measures to draw, each with its title.
        title: Second line of the title.
    """
    figure = Picture(WIDTH, 6.4)
    subfigures: Any = figure.subfigures(2, 1, height_ratios=(1, 1.2))
    above, below = subfigures
    axes = above.subplots(1, len(measures), squeeze=False)[0]
    for axis, (name, label) in zip(axes, measures.items(), strict=True):
        values = _average_map(heads, name)
        image = draw_map(axis, values, **colour_scale([values]))
        axis.set_title(escape(label))
        axis.set_xlabel("head")
        axis.set_yticks(range(len(values)))
        above.colorbar(image, ax=axis, location="bottom", shrink=0.9)
    axes[0].set_ylabel("layer")
    noise_axis, accuracy, log_prob = below.subplots(1, 3)
    names = [*_unique(noise, "allocation"), *_unique(removal, "by")]
    styles = dict(zip(names, zip(distinct_colours(len(names)), MARKERS * len(names))))
    _draw_noise(noise_axis, noise, styles)
    _draw_removal(accuracy, removal, "hits", styles)
    _draw_removal(log_prob, _with_difference(removal), "less", styles)
    baseline, *_ = spread([row["hits"] for row in _whole_networks(removal).values()])
    for axis in (noise_axis, accuracy):
        axis.axhline(baseline, label=f"whole network: {100 * baseline:.1f} %", **REFERENCE_LINE)
    log_prob.axhline(0, **REFERENCE_LINE)
    noise_axis.set_ylabel("correct answers under noise")
    accuracy.set_ylabel("correct answers of the pruned network")
    log_prob.set_ylabel("log p minus whole network's, nats")
    for axis in (noise_axis, accuracy, log_prob):
        axis.grid()
    add_legend(figure, columns=4)
    write_title(figure, f"Noise in heads and removal of heads of an encoder\n{title}")
    return figure


def _average_map(heads: Rows, name: str) -> Float[np.ndarray, "layer head"]:
    """Averages a measure over seeds."""
    groups = _group_rows(heads, "block", "head")
    blocks = dict.fromkeys(block for block, _ in groups)
    return pad_rows(
        [np.mean([row[name] for row in rows]) for (key, _), rows in groups.items() if key == block]
        for block in blocks
    )


def _draw_noise(axis: Any, noise: Rows, styles: Styles) -> None:
    """Draws the share of correct answers against the KL of the noise, one line per allocation."""
    for allocation in _unique(noise, "allocation"):
        allocation_rows = [row for row in noise if row["allocation"] == allocation]
        groups = _group_rows(allocation_rows, "price").values()
        points = [
            {"kl": np.mean([row["kl"] for row in rows])}
            | spread_columns("hits", (row["hits"] for row in rows))
            for rows in groups
        ]
        points.sort(key=lambda point: point["kl"])
        values, intervals = values_with_intervals(points, "hits")
        kl = [point["kl"] for point in points]
        _draw_line(axis, kl, values, intervals, styles[allocation], f"noise: {allocation}")
    axis.set_xscale("log")
    axis.set_xlabel("KL to the prior, nats per question")


def _draw_removal(axis: Any, removal: Rows, name: str, styles: Styles) -> None:
    """Draws a value of the pruned networks against the heads left, one line per ranking."""
    total = max(row["heads"] for row in removal)
    names = _unique(removal, "by")
    shifts = SHIFT * total * (np.arange(len(names)) - (len(names) - 1) / 2)
    for ranking, shift in zip(names, shifts, strict=True):
        ranking_rows = [row for row in removal if row["by"] == ranking and row["heads"] < total]
        points = [
            {"heads": heads} | spread_columns(name, (row[name] for row in rows))
            for (heads,), rows in sorted(_group_rows(ranking_rows, "heads").items())
        ]
        values, intervals = values_with_intervals(points, name)
        positions = [point["heads"] + shift for point in points]
        _draw_line(axis, positions, values, intervals, styles[ranking], f"by {ranking}")
    axis.set_xticks(sorted({row["heads"] for row in removal} - {total}))
    axis.set_xlabel("heads left")
    axis.invert_xaxis()


def _draw_line(
    axis: Any,
    positions: Sequence[float],
    values: Any,
    intervals: Any,
    style: tuple[str, str],
    label: str,
) -> None:
    """Draws connected points with their intervals."""
    colour, marker = style
    axis.errorbar(positions, values, intervals, color=colour, marker=marker, capsize=2, label=label)


def _with_difference(removal: Rows) -> list[dict[str, Any]]:
    """Adds the difference in log p to the whole network of the same seed."""
    whole_rows = _whole_networks(removal)
    return [{**row, "less": row["nats"] - whole_rows[row.get("seed")]["nats"]} for row in removal]


def _whole_networks(removal: Rows) -> dict[Any, Mapping[str, Any]]:
    """The row of the network with all heads, by seed."""
    total = max(row["heads"] for row in removal)
    return {row.get("seed"): row for row in removal if row["heads"] == total}


def _unique(rows: Rows, name: str) -> list[str]:
    return list(dict.fromkeys(row[name] for row in rows))


def _group_rows(rows: Rows, *names: str) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    """Groups rows by the values of some columns."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups
