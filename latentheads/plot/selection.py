"""Which heads every task speaks with, and how that came about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from latentheads.names import layer_of
from latentheads.plot.canvas import (
    Picture,
    add_legend,
    check_not_empty,
    draw_map,
    escape,
    group_by_attention_type,
    pad_rows,
    write_title,
)
from latentheads.plot.style import MARKERS, RED, cycle_colours, in_style

__all__ = ["draw_gates", "draw_selection", "draw_selection_history"]


@in_style
def draw_selection(found: Mapping[str, Any], title: str = "") -> Figure:
    """Draws which heads every task speaks with, and how many two tasks share.

    Args:
        found: By chain: ``tasks``, their names; ``probabilities``, of every block; ``sharing``;
            ``by_chance``.
        title: What was trained.
    """
    check_not_empty("found", found)
    tasks = max(len(side["tasks"]) for side in found.values())
    shared = max(1.9, 0.42 * tasks)  # inches of a matrix whose cells each hold a number
    figure = Picture(1.9 * tasks + shared + 0.8, (shared + 0.3) * len(found) + 0.8)
    widths = [1.9] * tasks + [shared]
    axes = figure.subplots(len(found), tasks + 1, squeeze=False, width_ratios=widths)
    image = None
    for row, (chain, side) in zip(axes, found.items()):
        for axis in row[len(side["tasks"]) : -1]:
            axis.set_axis_off()
        for place, task in enumerate(side["tasks"]):
            chances, chosen = (
                pad_rows(block[place] for block in side[name].values())
                for name in ("probabilities", "chosen")
            )
            image = draw_map(row[place], chances, vmin=0, vmax=1)
            rows, heads = np.nonzero(chosen == 1)
            row[place].scatter(heads, rows, s=26, color=RED, edgecolor="white", lw=0.8)
            row[place].set_title(escape(f"{chain}: {task or 'all'}"))
            row[place].set_xlabel("candidate head")
            row[place].set_ylabel("layer")
            layers = [str(layer_of(block)) for block in side["probabilities"]]
            row[place].set_yticks(range(len(chances)), layers)
        _draw_sharing(row[-1], side)
    if image is not None:
        figure.colorbar(image, ax=axes, label="posterior probability (dot: chosen)", shrink=0.8)
    write_title(figure, f"Which heads every task speaks with\n{title}")
    return figure


def _draw_sharing(axis: Any, side: dict[str, Any]) -> None:
    """Draws a matrix of tasks, each number written in its cell; nothing of a single task.

    Two tasks one of which has no heads have a dash.
    """
    if len(side["tasks"]) < 2:
        axis.set_axis_off()
        return
    matrix = np.array(side["sharing"], dtype=float)
    names = [escape(name or "all") for name in side["tasks"]]
    draw_map(axis, matrix, vmin=0, vmax=1, cmap="Greens", aspect="equal")
    for y, x in np.ndindex(matrix.shape):
        colour = "white" if matrix[y, x] > 0.6 else "black"
        text = "-" if np.isnan(matrix[y, x]) else f"{matrix[y, x]:.2f}"
        axis.text(x, y, text, ha="center", va="center", fontsize=8, color=colour)
    axis.set_xticks(range(len(names)), names, rotation=30)
    axis.set_yticks(range(len(names)), names)
    axis.set_title(f"heads in common\n({side['by_chance']:.2f} by chance)")


@in_style
def draw_gates(gates: Mapping[str, Float[Tensor, " head"]], title: str = "") -> Figure:
    """Draws the gate of every head at test time, a panel a chain.

    Args:
        gates: By block: 0 where a gate is closed, 1 where it is open, or between.
        title: What was trained.
    """
    chains = group_by_attention_type(gates)
    figure = Picture(2.3 * len(chains) + 0.6, 1.6 + 0.3 * max(map(len, chains.values())))
    axes = figure.subplots(1, len(chains), squeeze=False)[0]
    for axis, (chain, blocks) in zip(axes, chains.items()):
        values = pad_rows(gates[block].tolist() for block in blocks)
        draw_map(axis, values, vmin=0, vmax=1, origin="lower")
        for layer, head in np.argwhere(~np.isnan(values)):
            value = values[layer, head]
            colour = "white" if value > 0.6 else "black"
            text = {0.0: "0", 1.0: "1"}.get(value, f"{value:.2f}")
            axis.text(head, layer, text, ha="center", va="center", fontsize=8, color=colour)
        axis.set_title(f"{chain}: {(values > 0).sum()} open")
        axis.set_xticks(range(values.shape[1]))
        axis.set_yticks(range(len(blocks)), [str(layer_of(block)) for block in blocks])
        axis.set_xlabel("head")
        axis.set_ylabel("layer")
    write_title(figure, f"The gate of every head at test time: 0 is closed, 1 open\n{title}")
    return figure


@in_style
def draw_selection_history(
    records: list[dict[str, Any]], found: Mapping[str, Any], title: str = ""
) -> Figure:
    """Draws the posterior probability of every candidate over training, a panel a block.

    Args:
        records: Those of ``metrics.jsonl``; ``selection`` has the probabilities of every block.
        found: By chain: ``tasks``, their names. A colour that stands for several has them all.
        title: What was trained.

    Raises:
        ValueError: No record has a selection.
    """
    records = [record for record in records if "selection" in record]
    if not records:
        raise ValueError(
            "no record has a selection: the run selects no heads, or its metrics are lost"
        )
    blocks = list(records[-1]["selection"])
    columns = min(3, len(blocks))
    rows = -(-len(blocks) // columns)
    figure = Picture(max(5.0, 2.5 * columns), 1.9 * rows + 1.0)
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    steps = [record["step"] for record in records]
    for axis in axes.flat[len(blocks) :]:
        axis.set_axis_off()
    for axis, block in zip(axes.flat, blocks):
        values = np.array([record["selection"][block] for record in records])
        tasks = zip(cycle_colours(values.shape[1]), MARKERS * values.shape[1])
        for task, (colour, mark) in zip(range(values.shape[1]), tasks):
            lines = axis.plot(steps, values[:, task], mark + "-", color=colour, lw=0.9, ms=3)
            lines[0].set_label(_name_task(found, task))
        axis.set_ylim(-0.02, 1.02)
        axis.set_title(block)
        axis.grid(axis="y")
    for axis in axes.flat[max(0, len(blocks) - columns) : len(blocks)]:
        axis.set_xlabel("updates")
        axis.tick_params(labelbottom=True)
    for row in axes:
        row[0].set_ylabel("q(speaks)")
    add_legend(figure, columns=4)
    write_title(figure, f"The posterior probability that each candidate head speaks\n{title}")
    return figure


def _name_task(found: Mapping[str, Any], task: int) -> str:
    """The names that the chains have for a task, each once."""
    names = [side["tasks"][task] or "all" for side in found.values() if task < len(side["tasks"])]
    return " / ".join(dict.fromkeys(names))
