"""What uncertainty is worth: a figure a measure, systems side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure as Drawing
from numpy import ndarray

from latentheads.plot.canvas import Picture, write_title
from latentheads.uncertainty.calibration import Bins
from latentheads.uncertainty.measures import Figure

__all__ = ["draw_figures", "draw_rejection", "draw_reliability"]

COLOURS = (
    *("#3b6fb6", "#d98032", "#4a9a5b", "#8a4fa3", "#b0413e", "#7b6a58", "#d16ba5", "#6f7f8f"),
    *("#b8a532", "#2f9e9e", "#1d2f5e", "#8fb339"),
)
ROW = 0.3
"""Inches of a system, at least."""

DOT = 0.1
"""Inches of one of its figures."""

ACROSS = 4
"""Panels beside each other."""

Figures = Mapping[str, Mapping[str, Figure]]
"""The figures of every system by their names, by the system's name."""


def draw_reliability(systems: Mapping[str, Mapping[str, Bins]], title: str = "") -> Drawing:
    """Draws how often tokens are right against the probability they were said with.

    Args:
        systems: The bins of each system, such as before and after scaling.
        title: What was read.
    """
    across = min(ACROSS, len(systems))
    down = math.ceil(len(systems) / across)
    figure = Picture(max(5.0, 2.6 * across), 1.2 + 2.5 * down)
    axes = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    for axis in axes.flat[len(systems) :]:
        axis.set_visible(False)
    for axis, (name, every) in zip(axes.flat, systems.items(), strict=False):
        axis.plot([0, 1], [0, 1], color="0.6", linewidth=0.8)
        for colour, (label, bins) in zip(COLOURS, every.items(), strict=False):
            said = f"{label}: ECE {bins.error:.3f}"
            axis.plot(bins.confidence, bins.accuracy, "o-", ms=3, color=colour, label=said)
        axis.set_title(name, fontsize=8)
        axis.legend(frameon=False, fontsize=6, loc="upper left")
        axis.tick_params(labelsize=7)
    figure.supxlabel("mean probability of the likeliest token, by bins", fontsize=8)
    figure.supylabel("share that is right", fontsize=8)
    write_title(figure, f"Is what is said with probability .7 right seven times of ten?\n{title}")
    return figure


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
    figure = Picture(max(5.0, 3.2 * len(curves)), 4.4)
    axes = figure.subplots(1, len(curves), squeeze=False, sharey=True)
    names = dict.fromkeys(name for systems in curves.values() for name in systems)
    colours = dict(zip(names, _cycle(len(names)), strict=True))
    for axis, (score, systems) in zip(axes.flat, curves.items(), strict=True):
        for name, curve in systems.items():
            colour = colours[name]
            share = np.linspace(0, 1, len(curve))
            axis.plot(share, curve, color=colour, linewidth=1, label=name)
        axis.plot(np.linspace(0, 1, len(oracle)), oracle, "k:", linewidth=1, label="oracle")
        axis.plot([0, 1], [oracle[0], 0], color="0.6", linewidth=1, label="random order")
        axis.set_title(f"by {score}", fontsize=8)
        axis.set_xlabel("share that is replaced", fontsize=8)
        axis.tick_params(labelsize=7)
    axes[0, 0].set_ylabel("mean error left: 1 - chrF / 100", fontsize=8)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=4, fontsize=7)
    write_title(figure, f"Are the translations that are doubted the bad ones?\n{title}")
    return figure


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
    height = 1.6 + legend + max(ROW, DOT * (most + 1)) * len(systems)
    figure = Picture(max(6.0, 2.0 + 2.6 * len(panels)), height)
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)
    names = list(systems)
    for axis, (what, shown) in zip(axes.flat, panels.items(), strict=True):
        half = min(0.35, 0.09 * (len(shown) - 1))
        shifts = np.linspace(-half, half, len(shown))
        for shift, colour, (name, label) in zip(shifts, COLOURS, shown.items(), strict=False):
            _draw_dots(axis, [systems[each].get(name) for each in names], shift, colour, label)
        axis.set_xlabel(what, fontsize=8)
        axis.grid(axis="x", alpha=0.3)
        axis.tick_params(labelsize=7)
    axes[0, 0].set_yticks(range(len(names)), names)
    axes[0, 0].invert_yaxis()
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=4, fontsize=7)
    write_title(figure, title)
    return figure


def _draw_dots(
    axis: Any, figures: Sequence[Figure | None], shift: float, colour: str, label: str
) -> None:
    """One figure of every system; nothing where a system has it not."""
    places = [place for place, each in enumerate(figures) if each is not None]
    known = [each for each in figures if each is not None]
    score, low, high = (
        np.array([getattr(each, name) for each in known]) for name in ("score", "low", "high")
    )
    spread = np.nan_to_num(np.stack([score - low, high - score])).clip(0)
    rows = np.array(places) + shift
    axis.errorbar(score, rows, xerr=spread, fmt="o", ms=3, color=colour, capsize=2, label=label)


def _cycle(number: int) -> list[str]:
    """As many colours, the first again behind the last."""
    return [COLOURS[place % len(COLOURS)] for place in range(number)]
