"""Figures of the calibration of links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from latentheads.contrib.plot.canvas import Picture, add_legend, write_title
from latentheads.contrib.plot.style import GREY, MARKERS, PALETTE, in_style


@in_style
def draw_calibration(own: Mapping[str, Any], title: str = "") -> Figure:
    """Draws a reliability diagram, and the precision of the most probable links.

    Args:
        own: The results of the aligner, as the study writes them.
        title: Second line of the title.
    """
    measured, scaled = own["calibration"]["test"], own["scaled_on_trial"]
    curves = {
        "correct: a possible link": measured["possible"],
        "correct: a sure link": measured["sure"],
        "a possible link, after scaling on trial": scaled["possible"],
    }
    figure = Picture(7.4, 3.9)
    left, right = figure.subplots(1, 2)
    left.plot([0, 1], [0, 1], color=GREY, linewidth=0.8)
    for colour, marker, (name, curve) in zip(PALETTE, MARKERS, curves.items(), strict=False):
        bins = curve["bins"]
        points = [
            point
            for *point, count in zip(bins["confidence"], bins["accuracy"], bins["count"])
            if count
        ]
        left.plot(*zip(*points, strict=True), f"{marker}-", color=colour, label=name)
    left.set_xlabel("probability of the link")
    left.set_ylabel("share that is correct")
    shares = {float(share): value for share, value in measured["precision_by_share"].items()}
    right.plot(list(shares), list(shares.values()), f"{MARKERS[0]}-", color=PALETTE[0])
    right.set_xlabel("share of links kept, most probable first")
    right.set_ylabel("precision")
    add_legend(figure, columns=2)
    write_title(figure, f"Calibration of links against manual links\n{title}")
    return figure
