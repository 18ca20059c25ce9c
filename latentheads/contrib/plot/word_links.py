"""Plots the probability of every link of a sentence pair, in both directions and joined."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from matplotlib.figure import Figure

from latentheads.contrib.align.symmetrization import LinkPosterior
from latentheads.contrib.plot.canvas import (
    MAX_LABEL,
    Picture,
    cell_inches,
    draw_map,
    frame_links,
    position_labels,
    write_title,
)
from latentheads.contrib.plot.style import in_style
from latentheads.metrics.alignment import Link

CELL = 0.19
"""Maximum width and height of a pair of words in inches."""

LETTER = 0.07
"""Width of a letter in inches."""


@in_style
def draw_word_links(
    posterior: LinkPosterior,
    source: Sequence[str],
    target: Sequence[str],
    links: Collection[Link] = (),
    title: str = "",
) -> Figure:
    """Draws both directions and their geometric mean side by side.

    Args:
        posterior: The posterior of the links.
        source: The source words, from left to right.
        target: The target words, from top to bottom.
        links: Gold links, framed.
        title: Title of the figure.
    """
    shape = len(source), len(target)
    if posterior.forward.shape != shape:
        raise ValueError(
            f"source and target must have {posterior.forward.shape} words, as the posterior; "
            f"got {shape}"
        )
    panels = {
        "source to target": posterior.forward,
        "target to source": posterior.backward,
        "geometric mean": posterior.product,
    }
    longest = (max(map(len, side), default=0) for side in (source, target))
    below, beside = (LETTER * min(MAX_LABEL, length) for length in longest)
    cell_width, cell_height = (cell_inches(number, CELL) for number in shape)
    width = 0.8 + beside + 3 * (0.15 + max(1.3, cell_width * shape[0]))
    figure = Picture(width, 1.8 + below + cell_height * shape[1])
    axes: Any = figure.subplots(1, 3, sharey=True, squeeze=False)
    image: Any = None
    for axis, (name, values) in zip(axes[0], panels.items(), strict=True):
        image = draw_map(axis, values.T, vmin=0, vmax=1)
        frame_links(axis, links)
        axis.set_xticks(*position_labels(source, cell_width), rotation=90)
        axis.set_title(name)
        axis.set_xlabel("source word")
    axes[0, 0].set_yticks(*position_labels(target, cell_height))
    axes[0, 0].set_ylabel("target word")
    bar = figure.colorbar(image, ax=axes, location="bottom", aspect=50, shrink=0.6, pad=0.02)
    bar.set_label("probability of the link")
    write_title(figure, f"{title}\nFramed: gold links." if links else title)
    return figure
