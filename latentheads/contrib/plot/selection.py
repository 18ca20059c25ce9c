"""Plots which heads are active for every task, gates, and how this developed in training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from latentheads.checks import check_not_empty
from latentheads.contrib.plot.canvas import (
    WIDTH,
    Picture,
    add_legend,
    cell_inches,
    draw_map,
    group_by_attention_type,
    label_steps,
    largest_value,
    legend_label,
    marker_stride,
    pad_rows,
    position_labels,
    shorten,
    show_whole_markers,
    write_title,
)
from latentheads.contrib.plot.style import MARKERS, RED, distinct_colours, in_style
from latentheads.names import layer_of

if TYPE_CHECKING:
    from latentheads.latents.bernoulli_heads.corpus import HeadPosterior
MAX_TASK = 16
"""Characters of the name of a task that fit above a panel."""

DOT = 0.11
"""Size in inches of a cell that has a dot."""

LETTER = 0.08
"""Width in inches of a letter of a tick label."""


@in_style
def draw_selection(selection: Mapping[str, Any], title: str = "") -> Figure:
    """Draws which heads are active for every task, and the overlap between tasks.

    Args:
        selection: By attention type: ``tasks``, their names; ``probabilities`` of every block;
            ``chosen``; ``sharing``; ``by_chance``.
        title: Second line of the title.
    """
    check_not_empty("selection", selection)
    max_tasks = max(len(entry["tasks"]) for entry in selection.values())
    matrix_inches = max(1.9, 0.42 * max_tasks)  # every cell has a number
    blocks = [entry["probabilities"] for entry in selection.values()]
    most_heads = max(len(rows[0]) for by_block in blocks for rows in by_block.values())
    width = max(1.9, 0.4 + DOT * most_heads)
    height = max(matrix_inches, DOT * max(map(len, blocks)))
    figure = Picture(width * max_tasks + matrix_inches + 0.8, (height + 0.3) * len(selection) + 0.8)
    widths = [width] * max_tasks + [matrix_inches]
    axes = figure.subplots(len(selection), max_tasks + 1, squeeze=False, width_ratios=widths)
    image: Any = None
    for row, (attention_type, entry) in zip(axes, selection.items()):
        for axis in row[len(entry["tasks"]) : -1]:
            axis.set_axis_off()
        for index, task in enumerate(entry["tasks"]):
            probabilities, chosen = (
                pad_rows(block[index] for block in entry[name].values())
                for name in ("probabilities", "chosen")
            )
            image = draw_map(row[index], probabilities, vmin=0, vmax=1, origin="lower")
            active = np.argwhere(chosen == 1)[:, ::-1]
            row[index].scatter(*active.T, s=26, color=RED, edgecolor="white", lw=0.8)
            row[index].set_title(f"{attention_type}\n{shorten(task or 'all', MAX_TASK)}")
            row[index].set_xlabel("head")
            heads = probabilities.shape[1]
            row[index].set_xticks(range(0, heads, math.ceil(heads / 8)))
            row[index].set_ylabel("layer")
            layers = [str(layer_of(block)) for block in entry["probabilities"]]
            row[index].set_yticks(range(len(probabilities)), layers)
        _draw_sharing(row[-1], entry)
    figure.colorbar(image, ax=axes, label="guide's probability\n(dot: active)", shrink=0.8)
    write_title(figure, f"Probability that each head is active\n{title}")
    return figure


def _draw_sharing(axis: Any, entry: dict[str, Any]) -> None:
    """Draws the overlap between tasks as a matrix of numbers; nothing for a single task.

    A pair with a task without heads has a dash.
    """
    if len(entry["tasks"]) < 2:
        axis.set_axis_off()
        return
    matrix = np.array(entry["sharing"], dtype=float)
    names = [shorten(name or "all", MAX_TASK) for name in entry["tasks"]]
    draw_map(axis, matrix, vmin=0, vmax=1, cmap="Greens", aspect="equal")
    for y, x in np.ndindex(matrix.shape):
        colour = "white" if matrix[y, x] > 0.6 else "black"
        text = "-" if np.isnan(matrix[y, x]) else f"{matrix[y, x]:.2f}"
        axis.text(x, y, text, ha="center", va="center", fontsize=8, color=colour)
    axis.set_xticks(range(len(names)), names, rotation=30, ha="right", rotation_mode="anchor")
    axis.set_yticks(range(len(names)), names)
    axis.set_title(f"heads in common\n({entry['by_chance']:.2f} by chance)")


@in_style
def draw_gates(gates: Mapping[str, Float[Tensor, " head"]], title: str = "") -> Figure:
    """Draws the gate of every head at test time, one panel per attention type.

    Args:
        gates: By block: 0 for a closed gate, 1 for an open one, or between.
        title: Second line of the title.
    """
    groups = group_by_attention_type(gates)
    most_heads = max(len(gates[block]) for block in gates)  # every cell has a number
    width, heights = max(2.3, 0.42 * most_heads + 0.5), [1 + 0.3 * len(b) for b in groups.values()]
    if width * len(groups) + 0.6 <= WIDTH:
        figure = Picture(width * len(groups) + 0.6, 0.6 + max(heights))
        axes = figure.subplots(1, len(groups), squeeze=False)
    else:
        figure = Picture(width + 0.6, 0.6 + sum(heights))
        axes = figure.subplots(len(groups), 1, squeeze=False, height_ratios=heights)
    for axis, (attention_type, blocks) in zip(axes.flat, groups.items()):
        num_open = sum(int((gates[block] > 0).sum()) for block in blocks)
        axis.set_title(f"{attention_type}: {num_open} open")
        _draw_heads(axis, gates, blocks)
    write_title(figure, f"Gate of every head at test time: 0 is closed, 1 is open\n{title}")
    return figure


def _draw_heads(axis: Any, values: Mapping[str, Tensor], blocks: Sequence[str]) -> None:
    """Draws a number between 0 and 1 for every head, layers from bottom to top."""
    cells = pad_rows(values[block].tolist() for block in blocks)
    draw_map(axis, cells, vmin=0, vmax=1, origin="lower")
    _write_cells(axis, cells)
    axis.set_xticks(range(cells.shape[1]))
    axis.set_yticks(range(len(blocks)), [str(layer_of(block)) for block in blocks])
    axis.set_xlabel("head")
    axis.set_ylabel("layer")


@in_style
def draw_head_posteriors(
    posteriors: HeadPosterior | Mapping[str, HeadPosterior] | Mapping[str, Float[Tensor, " head"]],
    width: Mapping[str, Float[Tensor, " head"]] | None = None,
    title: str = "",
) -> Figure:
    """Draws the probability of every head to be in the subset that a corpus needs, and its width.

    Args:
        posteriors: What ``lh.head_posterior`` returns, those of several blocks by name, or
            inclusion probabilities of blocks alone.
        width: The widths of their bootstrap intervals; None: computed from the posteriors.
        title: Second line of the title.
    """
    inclusion = _inclusion_by_block(posteriors)
    if width is None:
        width = _width_by_block(posteriors)
    groups = group_by_attention_type(inclusion)
    rows = {"inclusion probability": inclusion, "width of its 95 % interval": width}
    height = 1.2 + 2 * (0.9 + 0.3 * max(map(len, groups.values())))
    most_heads = max(map(len, inclusion.values()))  # every cell has a number
    figure = Picture(max(2.3, 0.45 * most_heads) * len(groups) + 0.6, height)
    axes = figure.subplots(2, len(groups), squeeze=False)
    for row, (quantity, values) in zip(axes, rows.items()):
        for axis, (attention_type, blocks) in zip(row, groups.items()):
            axis.set_title(f"{attention_type}\n{quantity}")
            _draw_heads(axis, values, blocks)
    write_title(figure, f"Which heads a corpus needs\n{title}")
    return figure


def _by_block(
    heads: Sequence[tuple[str, int]], values: Float[Tensor, " head"]
) -> dict[str, Tensor]:
    """Values of heads by their block; not a number where a block's head has none."""
    numbers: dict[str, int] = {}
    for block, head in heads:
        numbers[block] = max(numbers.get(block, 0), head + 1)
    by_block = {block: values.new_full((number,), np.nan) for block, number in numbers.items()}
    for (block, head), value in zip(heads, values, strict=True):
        by_block[block][head] = value
    return by_block


def _inclusion_by_block(
    posteriors: HeadPosterior | Mapping[str, HeadPosterior] | Mapping[str, Tensor],
) -> dict[str, Float[Tensor, " head"]]:
    """The inclusion probabilities of one posterior, or of several."""
    if not isinstance(posteriors, Mapping):
        return _by_block(posteriors.heads, posteriors.inclusion)
    check_not_empty("posteriors", posteriors)
    return {
        name: value if isinstance(value, Tensor) else _of_block(name, value, value.inclusion)
        for name, value in posteriors.items()
    }


def _of_block(name: str, posterior: HeadPosterior, values: Float[Tensor, " head"]) -> Tensor:
    """Values of the heads of a posterior that is of one block alone."""
    by_block = _by_block(posterior.heads, values)
    if list(by_block) != [name]:
        blocks = ", ".join(by_block)
        raise ValueError(f"posteriors[{name!r}] must be of this block alone, got {blocks}")
    return by_block[name]


def _width_by_block(
    posteriors: HeadPosterior | Mapping[str, HeadPosterior] | Mapping[str, Tensor],
) -> dict[str, Float[Tensor, " head"]]:
    """The widths of the bootstrap intervals."""
    if not isinstance(posteriors, Mapping):
        return _by_block(posteriors.heads, posteriors.bootstrap().width)
    widths = {}
    for name, value in posteriors.items():
        if isinstance(value, Tensor):
            raise ValueError(f"width is missing: {name} has inclusion probabilities alone")
        widths[name] = _of_block(name, value, value.bootstrap().width)
    return widths


@in_style
def draw_covariance(posterior: HeadPosterior, title: str = "") -> Figure:
    """Draws the covariance of the gates of heads: negative where one can stand in for another.

    Args:
        posterior: The posterior over their subsets, of ``lh.head_posterior``.
        title: Second line of the title.
    """
    covariance = posterior.covariance
    off_diagonal = covariance - covariance.diagonal().diag()
    limit = largest_value([off_diagonal.abs()])
    names = [f"{block} {head}" for block, head in posterior.heads]
    cell = cell_inches(len(names), 0.45)
    labels, cells_inches = LETTER * max(map(len, names)), max(1.8, cell * len(names))
    figure = Picture(labels + cells_inches + 1.8, labels + cells_inches + 1.2)
    axis = figure.subplots()
    cells = off_diagonal.numpy().copy()
    np.fill_diagonal(cells, np.nan)
    limits = {"vmin": -limit, "vmax": limit}
    image = draw_map(axis, cells, cmap="RdBu", aspect="equal", **limits)
    axis.set_xticks(*position_labels(names, cell), rotation=90)
    axis.set_yticks(*position_labels(names, cell))
    axis.set_xlabel("block and head")
    axis.set_ylabel("block and head")
    figure.colorbar(image, ax=axis, label="covariance of the gates", shrink=0.8)
    write_title(figure, f"Heads that can replace each other are red\n{title}")
    return figure


def _write_cells(axis: Any, cells: Any) -> None:
    """Writes the number of every cell of a map between 0 and 1."""
    for layer, head in np.argwhere(~np.isnan(cells)):
        value = cells[layer, head]
        colour = "white" if value > 0.6 else "black"
        text = {0.0: "0", 1.0: "1"}.get(value, f"{value:.2f}")
        axis.text(head, layer, text, ha="center", va="center", fontsize=8, color=colour)


@in_style
def draw_selection_history(
    records: list[dict[str, Any]], selection: Mapping[str, Any], title: str = ""
) -> Figure:
    """Draws the guide's probability that each head is active over training, one panel per block.

    Args:
        records: Those of ``metrics.jsonl``; ``selection`` has the probabilities of every block.
        selection: By attention type: ``tasks``, their names. A colour that stands for several tasks
            has all their names.
        title: Second line of the title.

    Raises:
        ValueError: No record has a selection.
    """
    records = [record for record in records if "selection" in record]
    if not records:
        raise ValueError("no record has a selection: the run has none, or its metrics file is lost")
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
        tasks = zip(distinct_colours(values.shape[1]), MARKERS * values.shape[1])
        for task, (colour, marker) in zip(range(values.shape[1]), tasks):
            style: dict[str, Any] = {"color": colour, "lw": 0.9, "ms": 3}
            style["markevery"] = marker_stride(steps)
            lines = axis.plot(steps, values[:, task], marker + "-", **style)
            lines[0].set_label(legend_label(_name_task(selection, task)))
        axis.set_ylim(-0.02, 1.02)
        axis.set_title(block)
        axis.grid(axis="y")
    for axis in axes.flat[max(0, len(blocks) - columns) : len(blocks)]:
        label_steps(axis, steps)
        axis.tick_params(labelbottom=True)
    for row in axes:
        row[0].set_ylabel("q(active)")
    show_whole_markers(figure)
    add_legend(figure, columns=4)
    write_title(figure, f"Probability that each head is active\n{title}")
    return figure


def _name_task(selection: Mapping[str, Any], task: int) -> str:
    """The names of a task in all attention types, each once."""
    names = [
        entry["tasks"][task] or "all" for entry in selection.values() if task < len(entry["tasks"])
    ]
    return " / ".join(dict.fromkeys(names))
