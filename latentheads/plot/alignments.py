"""Where the words of a sentence point: before they are known, under the guide, and exactly."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from matplotlib.figure import Figure

from latentheads.metrics.alignment import Link
from latentheads.plot.canvas import WIDTH, Picture, draw_map, escape, frame_links, write_title
from latentheads.plot.style import in_style
from latentheads.reading.alignments import LAWS, AlignmentLaws

__all__ = ["draw_alignments"]

TITLES = {
    "prior": "prior: before the word is known",
    "guide": "guide",
    "posterior": "exact posterior: given the word",
}


@in_style
def draw_alignments(
    laws: AlignmentLaws,
    sources: Sequence[str],
    targets: Sequence[str],
    links: Collection[Link] = (),
    guide: str = "",
    title: str = "",
) -> Figure:
    """Draws prior, guide and exact posterior of the first sentence side by side, a row a head.

    Args:
        laws: Where the words point.
        sources: What stands at each position that may be pointed at.
        targets: The words that point.
        links: Gold links, framed.
        guide: What the guide is called, and what it reads.
        title: What was read.
    """
    sources, targets = list(map(escape, sources)), list(map(escape, targets))
    heads, size = len(laws.heads), (len(targets), len(sources))
    width, height = 0.3 + 0.15 * size[1], 0.5 + 0.19 * size[0]
    figure = Picture(max(WIDTH, 1.2 + 3 * width), 1.5 + heads * height + 0.08 * _longest(sources))
    axes = figure.subplots(heads, len(LAWS), squeeze=False, sharex=True, sharey=True)
    image: Any = None
    for row, line in enumerate(axes):
        for axis, law in zip(line, LAWS):
            values = getattr(laws, law)[0, row, : size[0], : size[1]].double().cpu().numpy()
            image = draw_map(axis, values, vmin=0, vmax=1)
            frame_links(axis, links)
        named = f"{laws.heads[row]}\n" if heads > 1 else ""
        line[0].set_ylabel(f"{named}target word")
        line[0].set_yticks(range(size[0]), targets)
    _name_columns(axes, sources, guide)
    bar = figure.colorbar(image, ax=axes, location="bottom", aspect=50, shrink=0.6, pad=0.02)
    bar.set_label("probability that the word points there")
    framed = "\nFramed: the true alignment." if links else ""
    write_title(figure, f"{title}{framed}")
    return figure


def _name_columns(axes: Any, sources: Sequence[str], guide: str) -> None:
    """Names each law, above, and what it may point at, below."""
    for axis, law in zip(axes[0], LAWS):
        axis.set_title(f"{TITLES[law]}: {guide}" if law == "guide" and guide else TITLES[law])
    for axis in axes[-1]:
        axis.set_xticks(range(len(sources)), sources, rotation=90)
        axis.set_xlabel("source word")


def _longest(words: Sequence[str]) -> int:
    return max(map(len, words), default=0)
