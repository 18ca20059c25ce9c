"""Every head of an encoder by four measures, and what is found without some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from latentheads.plot.canvas import Picture

__all__ = ["draw_encoder"]

COLOURS = ("#3b6fb6", "#d98032", "#4a9a5b", "#8a4fa3", "#888888")


def draw_encoder(
    maps: Mapping[str, np.ndarray],
    noise: Sequence[Mapping[str, Any]],
    removal: Mapping[str, Sequence[tuple[int, float]]],
) -> Figure:
    """Draws a map of each measure above, noise and removal against what is found below.

    Args:
        maps: By the name of a measure, a number for each head: layers by heads.
        noise: Rows of the noise that was tried: allocation, kl, hits.
        removal: By the name of a ranking, heads that stay and the share that is found.
    """
    figure = Picture(9.5, 6.0)
    parts: Any = figure.subfigures(2, 1, height_ratios=(1, 1.15))
    above, below = parts
    axes = above.subplots(1, len(maps))
    for axis, (name, values) in zip(np.atleast_1d(axes), maps.items(), strict=True):
        shown = axis.imshow(values, cmap="viridis", aspect="auto")
        axis.set_title(name, fontsize=8)
        axis.set_xlabel("head", fontsize=8)
        axis.set_yticks(range(len(values)))
        axis.tick_params(labelsize=7)
        above.colorbar(shown, ax=axis, location="bottom", shrink=0.9).ax.tick_params(labelsize=6)
    np.atleast_1d(axes)[0].set_ylabel("layer", fontsize=8)
    left, right = below.subplots(1, 2)
    for place, allocation in enumerate(dict.fromkeys(row["allocation"] for row in noise)):
        rows = sorted((r["kl"], r["hits"]) for r in noise if r["allocation"] == allocation)
        left.plot(*zip(*rows), marker="o", color=COLOURS[place], label=allocation)
    left.set_xscale("log")
    left.set_xlabel("nats a question that the heads cost (KL to the prior)", fontsize=8)
    left.set_ylabel("answers found under the noise", fontsize=8)
    for place, (name, points) in enumerate(removal.items()):
        right.plot(*zip(*points), marker="o", color=COLOURS[place], label=f"by {name}")
    right.set_xlabel("heads that stay", fontsize=8)
    right.set_ylabel("answers found by the smaller network", fontsize=8)
    right.invert_xaxis()
    for axis in (left, right):
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=7)
    return figure
