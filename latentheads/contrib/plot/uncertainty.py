"""Plots of uncertainty measures, for several systems."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MaxNLocator
from numpy import ndarray

from latentheads.checks import check_not_empty
from latentheads.contrib.plot.canvas import (
    WIDTH,
    Picture,
    add_legend,
    escape,
    fold,
    legend_label,
    show_whole_markers,
    write_title,
)
from latentheads.contrib.plot.style import GREY, LINES, MARKERS, distinct_colours, in_style
from latentheads.contrib.uncertainty.calibration import Bins
from latentheads.contrib.uncertainty.measures import Figure

ROW = 0.3
"""Minimum height of a system's row in inches."""

DOT = 0.1
"""Height of a metric within a row in inches."""

COLUMNS = 3
"""Maximum number of panels side by side."""

LINE = 0.2
"""Height of a further line of an x label."""

AREA = 70.0
"""Square points of the marker of a bin that has all tokens."""

LEAST_AREA = 1.5
"""Square points of the smallest marker, which is still seen."""

FEW_TOKENS = 10
"""Tokens of a bin below which no line leads to it: its accuracy is mostly chance."""

Figures = Mapping[str, Mapping[str, Figure]]
"""The metrics of every system by name, by name of the system."""


@in_style
def draw_reliability(systems: Mapping[str, Mapping[str, Bins]], title: str = "") -> Drawing:
    """Draws the accuracy of tokens against their predicted probability.

    The area of a marker grows with its bin's share of tokens. A line joins the bins of at least
    :data:`FEW_TOKENS` tokens; the accuracy of smaller ones is mostly chance.

    Args:
        systems: The bins of each system by label, such as before and after temperature scaling.
        title: Second line of the title.
    """
    marks = f"(area: share of tokens;\nline: bins of {FEW_TOKENS} or more)"
    figure, panels = _make_panels(systems, f"probability of the likeliest token\n{marks}")
    for axis, bins_of_labels in zip(panels, systems.values(), strict=True):
        axis.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)
        colours = distinct_colours(len(bins_of_labels))
        for colour, marker, (label, bins) in zip(colours, cycle(MARKERS), bins_of_labels.items()):
            legend = legend_label(f"{label}: ECE {bins.error:.3f}")
            points = bins.confidence, bins.accuracy
            joined = (values[bins.count >= FEW_TOKENS] for values in points)
            axis.plot(*joined, color=colour, linewidth=0.9, alpha=0.6, label=legend)
            areas = np.maximum(AREA * bins.count / max(bins.count.sum(), 1), LEAST_AREA)
            style = {"color": colour, "marker": marker, "linewidths": 0}
            axis.scatter(*points, areas, **style, clip_on=False, zorder=2)
            axis.scatter([], [], AREA / 4, **style, label=legend)  # that of the legend
        _merge_handles(axis)
        axis.set_ylim(0, 1 + 0.14 * len(bins_of_labels))  # room above the curves
        axis.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    show_whole_markers(figure)
    figure.supylabel("accuracy", fontsize=9)
    write_title(figure, f"Reliability: accuracy by predicted probability\n{title}")
    return figure


@in_style
def draw_rejection(
    systems: Mapping[str, Mapping[str, Float[ndarray, " replaced"]]],
    oracles: Mapping[str, Float[ndarray, " replaced"]],
    title: str = "",
) -> Drawing:
    """Draws the error left when the most uncertain translations are replaced by references.

    Args:
        systems: For each system the curve of every uncertainty score.
        oracles: The curve of the errors themselves, for each system.
        title: Second line of the title.
    """
    figure, panels = _make_panels(systems, "share of translations replaced")
    scores = dict.fromkeys(score for curves in systems.values() for score in curves)
    styles = dict(zip(scores, zip(distinct_colours(len(scores)), cycle(LINES))))
    for axis, (name, curves) in zip(panels, systems.items(), strict=True):
        axis.plot([0, 1], [1, 0], color=GREY, linewidth=0.8, label="random order")
        for score, curve in curves.items():
            colour, line = styles[score]
            _draw_curve(axis, curve, line, color=colour, label=f"by {score}")
        _draw_curve(axis, oracles[name], ":", color=GREY, label="by the errors themselves")
    figure.supylabel("error left (1 - chrF), of all error", fontsize=9)
    add_legend(figure, columns=3)
    write_title(figure, f"Rejection: error left when uncertain translations are replaced\n{title}")
    return figure


def _merge_handles(axis: Any) -> None:
    """Adds a legend in which a line and a marker of one label are one entry."""
    handles: dict[str, tuple[Any, ...]] = {}
    for handle, label in zip(*axis.get_legend_handles_labels()):
        handles[label] = (*handles.get(label, ()), handle)
    axis.legend(
        list(handles.values()),
        list(map(escape, handles)),
        loc="upper left",
        borderaxespad=0.1,
        handlelength=1.2,
    )


def _draw_curve(axis: Any, curve: Float[ndarray, " replaced"], line: str, **shown: str) -> None:
    """Draws a rejection curve, normalised by the whole error."""
    axis.plot(np.linspace(0, 1, len(curve)), curve / (curve[0] or 1), line, linewidth=1.2, **shown)


def _make_panels(names: Collection[str], xlabel: str) -> tuple[Picture, list[Any]]:
    """Makes a figure with one panel for each system, on shared axes."""
    check_not_empty("systems", names)
    columns = min(COLUMNS, len(names))
    rows = math.ceil(len(names) / columns)
    height = 2.4 + LINE * xlabel.count("\n")
    figure = Picture(max(5.4, 2.5 * columns), 1.2 + height * rows)
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flat
    for axis in axes[len(names) :]:
        axis.set_visible(False)
    panels = list(axes[: len(names)])
    for axis, name in zip(panels, names, strict=True):
        axis.set_title(fold(name, 30))
    for axis in panels[-columns:]:
        axis.set_xlabel(xlabel)
        axis.tick_params(labelbottom=True)
    return figure, panels


@in_style
def draw_metrics(
    systems: Figures, panels: Mapping[str, Mapping[str, str]], title: str = ""
) -> Drawing:
    """Draws metrics with their intervals, one row per system.

    Args:
        systems: The metrics of every system.
        panels: For each panel its x label, and the names and labels of its metrics.
        title: Title of the figure.
    """
    check_not_empty("systems", systems)
    check_not_empty("panels", panels)
    max_figures = max(map(len, panels.values()))
    legend = 0.25 * max_figures
    height = 1.4 + legend + max(ROW, DOT * (max_figures + 1)) * len(systems)
    figure = Picture(max(WIDTH, 1.6 + 2.2 * len(panels)), height)
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)
    names = list(systems)
    for axis, (xlabel, labels) in zip(axes.flat, panels.items(), strict=True):
        half = min(0.35, 0.09 * (len(labels) - 1))
        shifts = np.linspace(-half, half, len(labels))
        styles = zip(shifts, distinct_colours(len(labels)), cycle(MARKERS))
        for (shift, colour, marker), (name, label) in zip(styles, labels.items()):
            figures = [systems[system].get(name) for system in names]
            style = {"color": colour, "marker": marker, "linestyle": "", "label": label}
            _draw_dots(axis, figures, shift, style)
        for index in range(1, len(names)):
            axis.axhline(index - 0.5, color="0.9", linewidth=0.8, zorder=0)
        axis.set_xlabel(escape(xlabel))
        axis.xaxis.set_major_locator(MaxNLocator(4))
        axis.grid(axis="x")
    axes[0, 0].set_yticks(range(len(names)), list(map(fold, names)))
    axes[0, 0].set_ylim(len(names) - 0.5, -0.5)
    add_legend(figure, columns=5)
    write_title(figure, title)
    return figure


def _draw_dots(
    axis: Any, figures: Sequence[Figure | None], shift: float, style: Mapping[str, Any]
) -> None:
    """Draws one metric of every system that has it; unknown ends of intervals are left out."""
    rows_of_figures = [row for row, figure in enumerate(figures) if figure is not None]
    present = [figure for figure in figures if figure is not None]
    values, *ends = (
        np.array([getattr(figure, name) for figure in present]) for name in ("score", "low", "high")
    )
    rows = np.array(rows_of_figures) + shift
    # an interval need not contain its value: resampled bins are further from the diagonal
    low, high = (np.where(np.isfinite(bound), bound, values) for bound in ends)
    axis.hlines(rows, low, high, color=style["color"], linewidth=1.2)
    axis.plot(values, rows, **style)
