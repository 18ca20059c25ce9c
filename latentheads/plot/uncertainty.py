"""What uncertainty is worth: a figure a measure, systems side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MaxNLocator
from numpy import ndarray

from latentheads.plot.canvas import WIDTH, Picture, add_legend, write_title
from latentheads.plot.style import GREY, LINES, MARKERS, PALETTE, colours_of, in_style
from latentheads.uncertainty.calibration import Bins
from latentheads.uncertainty.measures import Figure

__all__ = ["draw_figures", "draw_rejection", "draw_reliability"]

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
    across = min(ACROSS, len(systems))
    down = math.ceil(len(systems) / across)
    figure = Picture(max(5.4, 2.5 * across), 1.2 + 2.4 * down)
    axes = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    for axis in axes.flat[len(systems) :]:
        axis.set_visible(False)
    for axis, (name, every) in zip(axes.flat, systems.items(), strict=False):
        axis.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)
        for colour, mark, (label, bins) in zip(PALETTE, MARKERS, every.items(), strict=False):
            said = f"{label}: ECE {bins.error:.3f}"
            axis.plot(bins.confidence, bins.accuracy, f"{mark}-", color=colour, label=said)
        axis.set_title(name)
        axis.legend(loc="upper left", borderaxespad=0.1, handlelength=1.2)
    figure.supxlabel("mean probability of the likeliest token, by bins", fontsize=9)
    figure.supylabel("share that is right", fontsize=9)
    write_title(figure, f"Is what is said with probability .7 right seven times of ten?\n{title}")
    return figure


@in_style
def draw_rejection(
    curves: Mapping[str, Mapping[str, Float[ndarray, " replaced"]]],
    oracle: Float[ndarray, " replaced"],
    title: str = "",
) -> Drawing:
    """Draws the error that is left when the most uncertain translations are perfect.

    Args:
        curves: For each score the curve of every system that has it; the first score all have.
        oracle: The curve of the first system's errors themselves.
        title: What was read.
    """
    figure = Picture(max(WIDTH, 2.4 * len(curves)), 4.2)
    axes = figure.subplots(1, len(curves), squeeze=False, sharey=True)
    names = dict.fromkeys(name for systems in curves.values() for name in systems)
    colours, lines = colours_of(len(names)), LINES * len(names)
    marks = dict(zip(names, zip(colours, lines, strict=False), strict=True))
    for axis, (score, systems) in zip(axes.flat, curves.items(), strict=True):
        for name, curve in systems.items():
            colour, line = marks[name]
            share = np.linspace(0, 1, len(curve))
            axis.plot(share, curve, line, color=colour, linewidth=1.2, label=name)
        axis.plot(np.linspace(0, 1, len(oracle)), oracle, "k:", linewidth=1.2, label="oracle")
        axis.plot([0, 1], [oracle[0], 0], color=GREY, linewidth=1, label="random order")
        axis.set_title(f"by {score}")
        axis.set_xlabel("share that is replaced")
        axis.grid()
    axes[0, 0].set_ylabel("mean error left: 1 - chrF / 100")
    add_legend(figure, columns=4)
    write_title(figure, f"Are the translations that are doubted the bad ones?\n{title}")
    return figure


@in_style
def draw_figures(
    systems: Figures, panels: Mapping[str, Mapping[str, str]], title: str = ""
) -> Drawing:
    """Draws figures with their intervals, a row a system.

    Args:
        systems: All figures.
        panels: For each panel, what it is of, the names of its figures and how they are told apart.
        title: What was read.
    """
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
            _draw_dots(axis, every, shift, {"color": colour, "fmt": mark, "label": label})
        for place in range(1, len(names)):
            axis.axhline(place - 0.5, color="0.9", linewidth=0.8, zorder=0)
        axis.set_xlabel(what)
        axis.xaxis.set_major_locator(MaxNLocator(4))
        axis.grid(axis="x")
    axes[0, 0].set_yticks(range(len(names)), names)
    axes[0, 0].set_ylim(len(names) - 0.5, -0.5)
    add_legend(figure, columns=5)
    write_title(figure, title)
    return figure


def _draw_dots(
    axis: Any, figures: Sequence[Figure | None], shift: float, shown: Mapping[str, Any]
) -> None:
    """One figure of every system; nothing where a system has it not."""
    places = [place for place, each in enumerate(figures) if each is not None]
    known = [each for each in figures if each is not None]
    score, low, high = (
        np.array([getattr(each, name) for each in known]) for name in ("score", "low", "high")
    )
    spread = np.nan_to_num(np.stack([score - low, high - score])).clip(0)
    rows = np.array(places) + shift
    axis.errorbar(score, rows, xerr=spread, linewidth=1.2, **shown)
