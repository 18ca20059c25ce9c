"""Pictures of uncertainty: a figure a measure, systems side by side."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MaxNLocator
from numpy import ndarray

from latentheads.plot.canvas import WIDTH, Picture, add_legend, check_not_empty, escape, write_title
from latentheads.plot.style import GREY, LINES, MARKERS, PALETTE, in_style
from latentheads.uncertainty.calibration import Bins
from latentheads.uncertainty.measures import Figure

__all__ = ["draw_metrics", "draw_rejection", "draw_reliability"]

ROW = 0.3
"""Inches of a system, at least."""

DOT = 0.1
"""Inches of one of its figures."""

ACROSS = 3
"""Panels beside each other."""

Figures = Mapping[str, Mapping[str, Figure]]
"""The figures of every system by their names, by the system's name."""


@in_style
def draw_reliability(systems: Mapping[str, Mapping[str, Bins]], title: str = "") -> Drawing:
    """Draws how often tokens are right against the probability they were said with.

    Args:
        systems: The bins of each system, such as before and after scaling.
        title: What was read.
    """
    figure, panels = _make_panels(systems, "probability of the likeliest token")
    for axis, every in zip(panels, systems.values(), strict=True):
        axis.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)
        for colour, mark, (label, bins) in zip(PALETTE, MARKERS, every.items(), strict=False):
            said = f"{label}: ECE {bins.error:.3f}"
            axis.plot(bins.confidence, bins.accuracy, f"{mark}-", color=colour, label=said)
        axis.legend(loc="upper left", borderaxespad=0.1, handlelength=1.2)
        axis.set_ylim(0, 1 + 0.14 * len(every))  # room above the curves
        axis.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    figure.supylabel("share that is right", fontsize=9)
    write_title(figure, f"Is what is said with probability .7 right seven times of ten?\n{title}")
    return figure


@in_style
def draw_rejection(
    systems: Mapping[str, Mapping[str, Float[ndarray, " replaced"]]],
    oracles: Mapping[str, Float[ndarray, " replaced"]],
    title: str = "",
) -> Drawing:
    """Draws how much error is left when the most uncertain translations are perfect.

    Args:
        systems: For each system the curve of every score that it has.
        oracles: The curve of each system's errors themselves.
        title: What was read.
    """
    figure, panels = _make_panels(systems, "share that is replaced")
    scores = dict.fromkeys(score for curves in systems.values() for score in curves)
    marks = dict(zip(scores, zip(PALETTE, LINES * len(scores), strict=False), strict=False))
    for axis, (name, curves) in zip(panels, systems.items(), strict=True):
        axis.plot([0, 1], [1, 0], color=GREY, linewidth=0.8, label="random order")
        for score, curve in curves.items():
            colour, line = marks[score]
            _draw_curve(axis, curve, line, color=colour, label=f"by {score}")
        _draw_curve(axis, oracles[name], ":", color=GREY, label="by the errors themselves")
    figure.supylabel("error left (1 - chrF), of all error", fontsize=9)
    add_legend(figure, columns=3)
    write_title(figure, f"Are the translations that are doubted the bad ones?\n{title}")
    return figure


def _draw_curve(axis: Any, curve: Float[ndarray, " replaced"], line: str, **shown: str) -> None:
    """A rejection curve, from all error down."""
    axis.plot(np.linspace(0, 1, len(curve)), curve / (curve[0] or 1), line, linewidth=1.2, **shown)


def _make_panels(names: Collection[str], across_what: str) -> tuple[Picture, list[Any]]:
    """A figure with a panel of the same axes for each system, its name above it."""
    check_not_empty("systems", names)
    across = min(ACROSS, len(names))
    down = math.ceil(len(names) / across)
    figure = Picture(max(5.4, 2.5 * across), 1.2 + 2.4 * down)
    every = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True).flat
    for axis in every[len(names) :]:
        axis.set_visible(False)
    panels = list(every[: len(names)])
    for axis, name in zip(panels, names, strict=True):
        axis.set_title(escape(name))
    for axis in panels[-across:]:
        axis.set_xlabel(across_what)
        axis.tick_params(labelbottom=True)
    return figure, panels


@in_style
def draw_metrics(
    systems: Figures, panels: Mapping[str, Mapping[str, str]], title: str = ""
) -> Drawing:
    """Draws figures with their intervals, a row a system.

    Args:
        systems: All figures.
        panels: For each panel, what it is of, the names of its figures and how they are told apart.
        title: What was read.
    """
    check_not_empty("systems", systems)
    check_not_empty("panels", panels)
    most = max(map(len, panels.values()))
    legend = 0.25 * most
    height = 1.4 + legend + max(ROW, DOT * (most + 1)) * len(systems)
    figure = Picture(max(WIDTH, 1.6 + 2.2 * len(panels)), height)
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)
    names = list(systems)
    for axis, (what, shown) in zip(axes.flat, panels.items(), strict=True):
        half = min(0.35, 0.09 * (len(shown) - 1))
        shifts = np.linspace(-half, half, len(shown))
        styles = zip(shifts, PALETTE, MARKERS, strict=False)
        for (shift, colour, mark), (name, label) in zip(styles, shown.items(), strict=False):
            every = [systems[each].get(name) for each in names]
            _draw_dots(
                axis,
                every,
                shift,
                {"color": colour, "marker": mark, "linestyle": "", "label": label},
            )
        for place in range(1, len(names)):
            axis.axhline(place - 0.5, color="0.9", linewidth=0.8, zorder=0)
        axis.set_xlabel(escape(what))
        axis.xaxis.set_major_locator(MaxNLocator(4))
        axis.grid(axis="x")
    axes[0, 0].set_yticks(range(len(names)), list(map(escape, names)))
    axes[0, 0].set_ylim(len(names) - 0.5, -0.5)
    add_legend(figure, columns=5)
    write_title(figure, title)
    return figure


def _draw_dots(
    axis: Any, figures: Sequence[Figure | None], shift: float, shown: Mapping[str, Any]
) -> None:
    """One figure of every system; nothing where a system has it not, nor an end that is unknown."""
    places = [place for place, each in enumerate(figures) if each is not None]
    known = [each for each in figures if each is not None]
    score, *ends = (
        np.array([getattr(each, name) for each in known]) for name in ("score", "low", "high")
    )
    rows = np.array(places) + shift
    # an interval need not hold its figure: resampled bins are further from the diagonal
    low, high = (np.where(np.isfinite(end), end, score) for end in ends)
    axis.hlines(rows, low, high, color=shown["color"], linewidth=1.2)
    axis.plot(score, rows, **shown)
