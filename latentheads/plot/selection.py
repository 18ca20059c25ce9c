"""Which heads every task speaks with, and how that came about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from latentheads.names import layer_of
from latentheads.plot.canvas import Picture, by_chain

__all__ = ["draw_gates", "draw_selection", "draw_selection_history"]


def draw_selection(found: dict[str, Any]) -> Figure:
    """Draws which heads every task speaks with, and how many two tasks share.

    Args:
        found: By chain: ``tasks``, their names; ``probabilities``, of every block; ``sharing``;
            ``by_chance``.
    """
    columns = 1 + max(len(side["tasks"]) for side in found.values())
    figure = Picture(2.3 * columns + 0.6, 2.5 * len(found) + 0.6)
    axes = figure.subplots(len(found), columns, squeeze=False)
    image = None
    for row, (chain, side) in zip(axes, found.items()):
        blocks = np.array(list(side["probabilities"].values()))
        for axis in row[len(side["tasks"]) : -1]:
            axis.set_axis_off()
        for place, task in enumerate(side["tasks"]):
            image = row[place].imshow(blocks[:, place], vmin=0, vmax=1, cmap="Blues", aspect="auto")
            layers, heads = np.nonzero(np.array(list(side["chosen"].values()))[:, place])
            row[place].scatter(heads, layers, s=14, color="#d98032", edgecolor="white", lw=0.5)
            row[place].set_title(f"{chain}: {task or 'all'}", fontsize=9)
            row[place].set_xlabel("candidate", fontsize=8)
            row[place].set_ylabel("layer", fontsize=8)
            row[place].set_yticks(range(len(blocks)))
        _draw_sharing(row[-1], side)
    if image is not None:
        figure.suptitle("Which heads every task speaks with", fontsize=10)
        figure.colorbar(image, ax=axes, label="posterior probability (dot: chosen)", shrink=0.8)
    return figure


def _draw_sharing(axis: Any, side: dict[str, Any]) -> None:
    """Draws a matrix of tasks, each number written in its cell; nothing of a single task.

    Two tasks one of which has no heads have a dash.
    """
    if len(side["tasks"]) < 2:
        axis.set_axis_off()
        return
    matrix = np.array(side["sharing"], dtype=float)
    names = [name or "all" for name in side["tasks"]]
    axis.imshow(matrix, vmin=0, vmax=1, cmap="Greens")
    for y, x in np.ndindex(matrix.shape):
        colour = "white" if matrix[y, x] > 0.6 else "black"
        text = "-" if np.isnan(matrix[y, x]) else f"{matrix[y, x]:.2f}"
        axis.text(x, y, text, ha="center", va="center", fontsize=8, color=colour)
    axis.set_xticks(range(len(names)), names, fontsize=8, rotation=30)
    axis.set_yticks(range(len(names)), names, fontsize=8)
    axis.set_title(f"heads in common\n({side['by_chance']:.2f} by chance)", fontsize=9)


def draw_gates(gates: Mapping[str, Float[Tensor, " head"]]) -> Figure:
    """Draws the gate of every head at test time, a panel a chain.

    Args:
        gates: By block: 0 where a gate is closed, 1 where it is open, or between.
    """
    chains = by_chain(gates)
    figure = Picture(2.5 * len(chains) + 0.6, 1.7 + 0.3 * max(map(len, chains.values())))
    axes = figure.subplots(1, len(chains), squeeze=False)[0]
    for axis, (chain, blocks) in zip(axes, chains.items()):
        values = np.full((len(blocks), max(len(gates[block]) for block in blocks)), np.nan)
        for row, block in zip(values, blocks):
            row[: len(gates[block])] = gates[block].double().cpu().numpy()
        axis.imshow(values, vmin=0, vmax=1, cmap="Blues", origin="lower", aspect="auto")
        for (layer, head), value in np.ndenumerate(values):
            colour = "white" if value > 0.6 else "black"
            text = {0.0: "0", 1.0: "1"}.get(value, f"{value:.2f}")
            axis.text(head, layer, text, ha="center", va="center", fontsize=8, color=colour)
        axis.set_title(f"{chain}: {(values > 0).sum()} open", fontsize=9)
        axis.set_xticks(range(values.shape[1]))
        axis.set_yticks(range(len(blocks)), [str(layer_of(block)) for block in blocks])
        axis.set_xlabel("head", fontsize=8)
        axis.set_ylabel("layer", fontsize=8)
    figure.suptitle("The gate of every head at test time: 0 is closed, 1 open", fontsize=10)
    return figure


def draw_selection_history(records: list[dict[str, Any]], found: dict[str, Any]) -> Figure:
    """Draws the posterior probability of every candidate over training, a panel a block.

    Args:
        records: Those of ``metrics.jsonl``; ``selection`` has the probabilities of every block.
        found: By chain: ``tasks``, their names. A colour that stands for several has them all.

    Raises:
        ValueError: No record has a selection.
    """
    records = [record for record in records if "selection" in record]
    if not records:
        raise ValueError(
            "no record has a selection: the run selects no heads, or its metrics are lost"
        )
    blocks = list(records[-1]["selection"])
    columns = min(4, len(blocks))
    rows = -(-len(blocks) // columns)
    figure = Picture(3 * columns, 2.1 * rows + 0.8)
    axes = figure.subplots(rows, columns, squeeze=False)
    steps = [record["step"] for record in records]
    for axis in axes.flat[len(blocks) :]:
        axis.set_axis_off()
    for axis, block in zip(axes.flat, blocks):
        values = np.array([record["selection"][block] for record in records])
        for task in range(values.shape[1]):
            lines = axis.plot(steps, values[:, task], color=f"C{task}", linewidth=0.9, marker=".")
            lines[0].set_label(_name_task(found, task))
        axis.set_ylim(-0.02, 1.02)
        axis.set_title(block, fontsize=9)
        axis.set_xlabel("updates", fontsize=8)
        axis.set_ylabel("q(speaks)", fontsize=8)
    most = max(axes.flat, key=lambda axis: len(axis.get_lines()))
    handles, labels = most.get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=len(labels))
    figure.suptitle("The posterior probability that each candidate speaks", fontsize=10)
    return figure


def _name_task(found: dict[str, Any], task: int) -> str:
    """What the chains call a task, each name once."""
    names = [side["tasks"][task] or "all" for side in found.values() if task < len(side["tasks"])]
    return " / ".join(dict.fromkeys(names))
