"""Every head of an encoder by four measures, and what is found without some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from latentheads.plot.canvas import WIDTH, Picture, draw_map, write_title
from latentheads.plot.style import MARKERS, PALETTE, in_style

__all__ = ["draw_encoder"]


@in_style
def draw_encoder(
    maps: Mapping[str, np.ndarray],
    noise: Sequence[Mapping[str, Any]],
    removal: Mapping[str, Sequence[tuple[int, float]]],
    title: str = "",
) -> Figure:
    """Draws a map of each measure above, noise and removal against what is found below.

    Args:
        maps: By the name of a measure, a number for each head: layers by heads.
        noise: Rows of the noise that was tried: allocation, kl, hits.
        removal: By the name of a ranking, heads that stay and the share that is found.
        title: The network, and what was read.
    """
    figure = Picture(WIDTH, 6.2)
    parts: Any = figure.subfigures(2, 1, height_ratios=(1, 1.15))
    above, below = parts
    axes = above.subplots(1, len(maps))
    for axis, (name, values) in zip(np.atleast_1d(axes), maps.items(), strict=True):
        shown = draw_map(axis, values)
        axis.set_title(name)
        axis.set_xlabel("head")
        axis.set_yticks(range(len(values)))
        above.colorbar(shown, ax=axis, location="bottom", shrink=0.9)
    np.atleast_1d(axes)[0].set_ylabel("layer")
    left, right = below.subplots(1, 2)
    for place, allocation in enumerate(dict.fromkeys(row["allocation"] for row in noise)):
        rows = sorted((r["kl"], r["hits"]) for r in noise if r["allocation"] == allocation)
        left.plot(*zip(*rows), marker=MARKERS[place], color=PALETTE[place], label=allocation)
    left.set_xscale("log")
    left.set_xlabel("KL to the prior, nats a question")
    left.set_ylabel("answers found under the noise")
    for place, (name, points) in enumerate(removal.items()):
        right.plot(*zip(*points), marker=MARKERS[place], color=PALETTE[place], label=f"by {name}")
    right.set_xlabel("heads that stay")
    right.set_ylabel("answers found by the smaller network")
    right.invert_xaxis()
    for axis in (left, right):
        axis.grid()
        axis.legend()
    write_title(figure, f"What the heads of an encoder bear\n{title}")
    return figure
