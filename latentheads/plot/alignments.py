"""Where the words of a sentence point: before they are known, under the guide, and exactly."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from latentheads.analysis.alignments import DISTRIBUTIONS, AlignmentDistributions
from latentheads.layers.subsampler import FACTOR
from latentheads.metrics.alignment import Link
from latentheads.plot.canvas import WIDTH, Picture, draw_map, escape, frame_links, write_title
from latentheads.plot.style import in_style

__all__ = ["draw_alignments"]

LABEL = 1.5
"""Inches of a map at least: the name of its head stands beside it."""

TITLES = {
    "prior": "prior: before the word is known",
    "guide": "guide",
    "posterior": "exact posterior: given the word",
}


@dataclass(frozen=True)
class _Look:
    """How the maps of words, or of sound, look.

    Attributes:
        targets: What points.
        inches: That a position takes.
        most: Positions that are named at most; None: all.
    """

    targets: str
    inches: float
    most: int | None = None

    def name_positions(self, axes: Any, sources: Sequence[str], pointed_at: str) -> None:
        """Names what may be pointed at, below: all positions, or evenly some of them."""
        step = 1 if self.most is None else math.ceil(len(sources) / self.most)
        for axis in axes:
            axis.set_xticks(range(0, len(sources), step), sources[::step], rotation=90)
            axis.set_xlabel(pointed_at)


WORDS = _Look("target word", 0.15)
SOUND = _Look("written", 0.05, most=12)


@in_style
def draw_alignments(
    laws: AlignmentDistributions,
    sources: Sequence[str],
    targets: Sequence[str],
    links: Collection[Link] = (),
    guide: str = "",
    title: str = "",
    frames: Float[np.ndarray, "frame bin"] | None = None,
    pointed_at: str = "source word",
) -> Figure:
    """Draws prior, guide and exact posterior of the first sentence side by side, a row a head.

    Args:
        laws: Where the words point.
        sources: What stands at each position that may be pointed at.
        targets: The words that point.
        links: Gold links, framed.
        guide: What the guide is called, and what it reads.
        title: What was read.
        frames: What is heard, normalised, where positions are of sound: drawn above, in their time.
        pointed_at: What positions are, where they are not of sound.
    """
    sources, targets = list(map(escape, sources)), list(map(escape, targets))
    heads, size = len(laws.heads), (len(targets), len(sources))
    above = [] if frames is None else [1.3]
    heights = [*above, *[max(LABEL, 0.5 + 0.19 * size[0])] * heads]
    look = WORDS if frames is None else SOUND
    width, below = 0.3 + look.inches * size[1], 0.08 * _longest(sources)
    figure = Picture(max(WIDTH, 1.2 + 3 * width), 1.5 + sum(heights) + below)
    axes = figure.subplots(
        len(heights),
        len(DISTRIBUTIONS),
        squeeze=False,
        sharex=True,
        sharey="row",
        height_ratios=heights,
    )
    maps = axes[len(above) :]
    if frames is not None:  # before the maps, whose positions end the shared axis
        _draw_frames(axes[0], frames)
    image: Any = None
    for row, line in enumerate(maps):
        for axis, law in zip(line, DISTRIBUTIONS):
            values = getattr(laws, law)[0, row, : size[0], : size[1]].double().cpu().numpy()
            image = draw_map(axis, values, vmin=0, vmax=1)
            frame_links(axis, links)
        named = laws.heads[row].replace(" head ", "\nhead ") + "\n" if heads > 1 else ""
        line[0].set_ylabel(f"{named}{look.targets}")
        line[0].set_yticks(range(size[0]), targets)
    _name_laws(axes[0], guide)
    look.name_positions(axes[-1], sources, pointed_at if frames is None else "heard")
    bar = figure.colorbar(image, ax=axes, location="bottom", aspect=50, shrink=0.6, pad=0.02)
    bar.set_label("probability that the word points there")
    framed = "\nFramed: the true alignment." if links else ""
    write_title(figure, f"{title}{framed}")
    return figure


def _name_laws(axes: Any, guide: str) -> None:
    """Names each law above its maps."""
    for axis, law in zip(axes, DISTRIBUTIONS):
        axis.set_title(f"{TITLES[law]}: {guide}" if law == "guide" and guide else TITLES[law])


def _draw_frames(axes: Any, frames: Float[np.ndarray, "frame bin"]) -> None:
    """Draws what is heard above each law, in the time of the positions."""
    number, bins = frames.shape
    for axis in axes:
        extent = (-0.5, number / FACTOR - 0.5, 0.0, float(bins))
        draw_map(axis, frames.T, origin="lower", extent=extent, cmap="magma")
    axes[0].set_ylabel("mel bin")


def _longest(words: Sequence[str]) -> int:
    return max(map(len, words), default=0)
