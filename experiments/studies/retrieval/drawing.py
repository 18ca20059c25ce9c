"""Every head of an encoder by several measures, and what is found without some of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from latentheads.metrics.seeds import spread, spread_columns
from latentheads.plot.canvas import (
    WIDTH,
    Picture,
    add_legend,
    draw_map,
    escape,
    pad_rows,
    read_spread,
    write_title,
)
from latentheads.plot.style import MARKERS, TRUTH, colours_of, in_style

__all__ = ["draw_encoder"]

Rows = Sequence[Mapping[str, Any]]
Marks = Mapping[str, tuple[str, str]]

APART = 0.01
"""How far the marks of two rankings stand apart, of all heads: both intervals are to be seen."""


@in_style
def draw_encoder(
    heads: Rows, noise: Rows, removal: Rows, measures: Mapping[str, str], title: str = ""
) -> Figure:
    """Draws a map of each measure above, noise and removal against what is found below.

    Rows are those of the tables that ``paraphrase.py`` writes, of one seed or of several below
    each other: what is drawn is the mean over seeds, with its 95 % interval by Student's t.

    Args:
        heads: ``block``, ``head`` and the measures of every head.
        noise: ``allocation``, ``price``, ``kl`` and the share ``hits`` that is found under it.
        removal: ``by``, the ranking; ``heads`` that stay, all of them too; ``hits``, and log p in
            ``nats``; ``seed``, where there are several.
        measures: The measures that are drawn, each with its title.
        title: The network, and what was read.
    """
    figure = Picture(WIDTH, 6.4)
    parts: Any = figure.subfigures(2, 1, height_ratios=(1, 1.2))
    above, below = parts
    axes = above.subplots(1, len(measures), squeeze=False)[0]
    for axis, (name, label) in zip(axes, measures.items(), strict=True):
        values = _map(heads, name)
        shown = draw_map(axis, values)
        axis.set_title(escape(label))
        axis.set_xlabel("head")
        axis.set_yticks(range(len(values)))
        above.colorbar(shown, ax=axis, location="bottom", shrink=0.9)
    axes[0].set_ylabel("layer")
    noisy, found, lost = below.subplots(1, 3)
    names = [*_names(noise, "allocation"), *_names(removal, "by")]
    marks = dict(zip(names, zip(colours_of(len(names)), MARKERS * len(names))))
    _draw_noise(noisy, noise, marks)
    _draw_removal(found, removal, "hits", marks)
    _draw_removal(lost, _less_whole(removal), "less", marks)
    whole, *_ = spread([row["hits"] for row in _whole(removal).values()])
    for axis in (noisy, found):
        axis.axhline(whole, label=f"the whole network: {100 * whole:.1f} %", **TRUTH)
    lost.axhline(0, **TRUTH)
    noisy.set_ylabel("answers found under the noise")
    found.set_ylabel("answers found by the smaller network")
    lost.set_ylabel("log p less the whole network's, nats")
    for axis in (noisy, found, lost):
        axis.grid()
    add_legend(figure, columns=4)
    write_title(figure, f"What the heads of an encoder bear\n{title}")
    return figure


def _map(heads: Rows, name: str) -> Float[np.ndarray, "layer head"]:
    """The mean of a measure over seeds, layers by heads."""
    found = _grouped(heads, "block", "head")
    blocks = dict.fromkeys(block for block, _ in found)
    return pad_rows(
        [np.mean([row[name] for row in rows]) for (other, _), rows in found.items() if other == own]
        for own in blocks
    )


def _draw_noise(axis: Any, noise: Rows, marks: Marks) -> None:
    """A line an allocation: what is found under noise, against its KL."""
    for allocation in _names(noise, "allocation"):
        mine = [row for row in noise if row["allocation"] == allocation]
        prices = _grouped(mine, "price").values()
        points = [
            {"kl": np.mean([row["kl"] for row in rows])}
            | spread_columns("hits", (row["hits"] for row in rows))
            for rows in prices
        ]
        points.sort(key=lambda point: point["kl"])
        middle, reach = read_spread(points, "hits")
        kl = [point["kl"] for point in points]
        _draw_line(axis, kl, middle, reach, marks[allocation], f"noise: {allocation}")
    axis.set_xscale("log")
    axis.set_xlabel("KL to the prior, nats a question")


def _draw_removal(axis: Any, removal: Rows, name: str, marks: Marks) -> None:
    """A line a ranking: a figure of the smaller networks, against the heads that stay."""
    whole = max(row["heads"] for row in removal)
    names = _names(removal, "by")
    shifts = APART * whole * (np.arange(len(names)) - (len(names) - 1) / 2)
    for ranking, shift in zip(names, shifts, strict=True):
        mine = [row for row in removal if row["by"] == ranking and row["heads"] < whole]
        points = [
            {"heads": heads} | spread_columns(name, (row[name] for row in rows))
            for (heads,), rows in sorted(_grouped(mine, "heads").items())
        ]
        middle, reach = read_spread(points, name)
        places = [point["heads"] + shift for point in points]
        _draw_line(axis, places, middle, reach, marks[ranking], f"by {ranking}")
    axis.set_xticks(sorted({row["heads"] for row in removal} - {whole}))
    axis.set_xlabel("heads that stay")
    axis.invert_xaxis()


def _draw_line(
    axis: Any, places: Sequence[float], middle: Any, reach: Any, mark: tuple[str, str], label: str
) -> None:
    """Draws points with their intervals, joined."""
    colour, marker = mark
    axis.errorbar(places, middle, reach, color=colour, marker=marker, capsize=2, label=label)


def _less_whole(removal: Rows) -> list[dict[str, Any]]:
    """The rows with log p less that of the whole network of the same seed."""
    whole = _whole(removal)
    return [{**row, "less": row["nats"] - whole[row.get("seed")]["nats"]} for row in removal]


def _whole(removal: Rows) -> dict[Any, Mapping[str, Any]]:
    """A row of the network with all of its heads, by the seed."""
    most = max(row["heads"] for row in removal)
    return {row.get("seed"): row for row in removal if row["heads"] == most}


def _names(rows: Rows, name: str) -> list[str]:
    return list(dict.fromkeys(row[name] for row in rows))


def _grouped(rows: Rows, *names: str) -> dict[tuple[Any, ...], list[Mapping[str, Any]]]:
    """The rows that have the same in some columns, those of every seed."""
    found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(tuple(row[name] for name in names), []).append(row)
    return found
