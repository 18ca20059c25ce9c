"""Pictures of the heads of several runs on one scale: divergence by layer, maps, roles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from torch import Tensor

from latentheads.analysis import Role, role_map
from latentheads.analysis.divergence import Divergence, pair_mean
from latentheads.analysis.head_report import HeadReport
from latentheads.names import ATTENTION_TYPES, Block
from latentheads.plot.canvas import (
    WIDTH,
    Picture,
    add_legend,
    check_not_empty,
    draw_map,
    escape,
    legend_label,
    pad_rows,
    write_title,
)
from latentheads.plot.style import DIVERGING_CMAP, MARKERS, MEAN_CMAP, cycle_colours, in_style
from latentheads.values import shown as said

__all__ = ["draw_averages", "draw_maps", "draw_roles"]

LAYERS = 6
"""Layers that an axis names all, at most."""
CELLS = 12
"""Heads side by side in a role map of several chains, at most."""
LETTERS = 48
"""Letters of a row's name, at most: the layout makes room for it beside the panels."""
LINE = 0.2
"""Inches of a line of a title; a figure has room for a heading and one line below it."""
QUANTITIES = {
    "confidence": "confidence\nmean largest weight",
    "entropy": "entropy\nnats",
    "importance": "importance\nhow much L feels it",
    "relevance": "relevance\nshare of the block",
    "cosine": "likeness (cosine)\nof what heads say",
}
NOBODY = "no head plays a role"
KINDS = {"positional": "#9ecae1", "syntactic": "#fdae6b", "rare-word": "#8fd0b9"}


def _ticks(number: int) -> range:
    return range(0, number, 1 if number <= 8 else max(4, number // 8))


@in_style
def draw_averages(head_reports: HeadReport | Sequence[HeadReport], title: str) -> Figure:
    """Draws the average divergence of every layer, a line a run: summed above, a query below.

    Args:
        head_reports: What is known of the heads of a run, or of each of several.
        title: Below the heading.
    """
    head_reports = _list_reports(head_reports)
    chains = _chains(head_reports)
    figure = Picture(WIDTH, 5.2)
    axes = figure.subplots(2, len(chains), squeeze=False, sharex="col", sharey="row")
    for place, head_report in enumerate(head_reports):
        for axis, chain in _each(axes[0], chains, head_report):
            _line(
                axis, head_report.divergence, head_report.blocks_of(chain), place, head_report.name
            )
        for axis, chain in _each(axes[1], chains, head_report):
            _line(
                axis,
                head_report.divergence_per_query,
                head_report.blocks_of(chain),
                place,
                head_report.name,
            )
    for (upper, lower), chain in zip(axes.T, chains):
        blocks = [block for each in head_reports for block in each.blocks_of(chain)]
        layers = sorted({block.layer for block in blocks})
        upper.set_title(chain)
        lower.set_xticks(layers if len(layers) <= LAYERS else _ticks(layers[-1] + 1))
        lower.set_xlabel("layer")
        upper.grid(True)
        lower.grid(True)
    labels = ("nats a sentence\n(summed over queries)", "nats a query\n(at most ln 2 = 0.693)")
    for row, label in zip(axes, labels):
        row[0].set_ylabel(f"average JSD of head pairs\n{label}")
        tops = [axis.dataLim.y1 for axis in row if np.isfinite(axis.dataLim.y1)]
        row[0].set_ylim(0, 1.08 * max(tops, default=1.0))
    add_legend(figure)
    write_title(figure, f"How far apart the heads of each layer are\n{title}")
    return figure


def _line(axis: Any, found: Divergence, blocks: Sequence[Block], place: int, name: str) -> None:
    heights = [pair_mean(found.summed[block.site()]) for block in blocks]
    values = [np.nan if height is None else height for height in heights]
    layers = [block.layer for block in blocks]
    colour, marker = cycle_colours(place + 1)[place], MARKERS[place % len(MARKERS)]
    axis.plot(layers, values, marker=marker, color=colour, label=legend_label(name))


@in_style
def draw_maps(head_reports: HeadReport | Sequence[HeadReport], title: str) -> Figure:
    """Draws layer-by-head maps, a column a quantity, for each chain a row a run.

    Args:
        head_reports: What is known of the heads of a run, or of each of several.
        title: Below the heading.
    """
    head_reports = _list_reports(head_reports)
    found = [head_report.maps for head_report in head_reports]
    names = [name for name in QUANTITIES if any(name in maps for maps in found)]
    lines = [
        (chain, head_report, maps)
        for chain in _chains(head_reports)
        for head_report, maps in zip(head_reports, found)
        if chain in head_report.attention_types
    ]
    heights = [
        0.22 + max(0.5, 0.15 * len(head_report.blocks_of(chain))) for chain, head_report, _ in lines
    ]
    figure = Picture(WIDTH, 1.5 + sum(heights))
    axes = figure.subplots(len(lines), len(names), height_ratios=heights, squeeze=False)
    for column, name in zip(axes.T, names):
        scale = _scale([maps[name] for maps in found if name in maps])
        image = ScalarMappable()
        for axis, (chain, head_report, maps) in zip(column, lines):
            if name in maps:
                image = _map(axis, head_report.blocks_of(chain), maps[name], scale)
            else:
                axis.set_axis_off()
        pad = 0.1 / sum(heights)
        bar = figure.colorbar(image, ax=column, location="top", aspect=12, shrink=0.95, pad=pad)
        bar.set_label(QUANTITIES[name], fontsize=8)
        column[-1].set_xlabel("head")
    _label_rows(axes, [f"{chain}, {head_report.name}" for chain, head_report, _ in lines])
    write_title(figure, f"What every head is like\n{title}")
    return figure


def _label_rows(axes: Any, names: Sequence[str]) -> None:
    """Names every row, and its layers once."""
    for row, name in zip(axes, names):
        row[0].set_ylabel("layer")
        row[0].set_title(_cut(name), loc="left", pad=3)
        for axis in row[1:]:
            axis.tick_params(labelleft=False)
    for row, below in pairwise(axes):
        for axis, next_axis in zip(row, below):
            axis.tick_params(labelbottom=axis.get_xlim() != next_axis.get_xlim())


def _cut(name: str) -> str:
    """A name that is not too long for a row, as a picture says it."""
    return escape(name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…")


def _scale(maps: Sequence[dict[str, Tensor]]) -> dict[str, Any]:
    """Colours for all values together: from 0, or around it where some are negative."""
    values = torch.cat([each.flatten() for blocks in maps for each in blocks.values()])
    values = values[values.isfinite()]
    top = max(1e-9, float(values.abs().max())) if len(values) else 1.0
    if (values < 0).any():
        return {"vmin": -top, "vmax": top, "cmap": DIVERGING_CMAP}
    return {"vmin": 0, "vmax": top, "cmap": MEAN_CMAP}


def _map(
    axis: Any, blocks: Sequence[Block], values: dict[str, Tensor], scale: dict[str, Any]
) -> Any:
    """Draws layers by heads; nothing where a block has fewer heads than others."""
    grid = pad_rows(values[block.name].tolist() for block in blocks)
    image = draw_map(axis, grid, origin="lower", **scale)
    axis.set_xticks(_ticks(grid.shape[1]))
    _name_layers(axis, blocks, _ticks(len(blocks)))
    return image


def _name_layers(axis: Any, blocks: Sequence[Block], rows: Sequence[int]) -> None:
    """Names some rows by their layers: one whose heads do not attend has no row."""
    axis.set_yticks(rows, [str(blocks[row].layer) for row in rows])


@in_style
def draw_roles(head_reports: HeadReport | Sequence[HeadReport], title: str) -> Figure:
    """Draws which head plays which role, a row a run, chains side by side where they fit.

    Args:
        head_reports: What is known of the heads of a run, or of each of several.
        title: Below the heading.
    """
    head_reports = _list_reports(head_reports)
    chains = _chains(head_reports)
    most = max(block.heads for head_report in head_reports for block in head_report.blocks)
    beside = len(chains) if most * len(chains) <= CELLS else 1
    lines = [
        (head_report, chains[start : start + beside])
        for head_report in head_reports
        for start in range(0, len(chains), beside)
        if any(chain in head_report.attention_types for chain in chains[start : start + beside])
    ]
    heights = [_role_height(head_report, shown) for head_report, shown in lines]
    figure = Picture(WIDTH, 1.4 + sum(heights))
    axes = figure.subplots(len(lines), beside, height_ratios=heights, squeeze=False)
    width = (WIDTH - 0.8) / (beside * most)
    for row, (head_report, shown) in zip(axes, lines):
        for axis in row:
            axis.set_axis_off()
        if not _plays(head_report, shown):
            row[0].set_title(f"{_cut(head_report.name)}: {NOBODY}", loc="left")
            continue
        for axis, chain in _each(row, shown, head_report):
            _roles(axis, head_report, chain, width)
        row[0].set_ylabel("layer")
        own = row[0].get_title(loc="left")
        row[0].set_title(f"{_cut(head_report.name)}\n{own}", loc="left")
    for axis in axes[-1]:
        axis.set_xlabel("head")
    figure.legend(
        handles=[Patch(color=colour, label=label) for label, colour in _kinds()],
        loc="outside lower center",
        ncols=2,
    )
    write_title(figure, f"Which head plays which role\n{title}")
    further = max(0, figure.get_suptitle().count("\n") - 1)
    figure.set_figheight(figure.get_figheight() + LINE * further)
    return figure


def _list_reports(given: HeadReport | Sequence[HeadReport]) -> Sequence[HeadReport]:
    """Of one run a list of one.

    Raises:
        ValueError: There is none.
    """
    reports = [given] if isinstance(given, HeadReport) else given
    if not isinstance(reports, Sequence) or not all(isinstance(e, HeadReport) for e in reports):
        raise ValueError(f"head_reports must be those of run.read_heads(), got {said(given)}")
    check_not_empty("head_reports", reports)
    return reports


def _plays(head_report: HeadReport, chains: Sequence[str]) -> bool:
    """Whether a head of these chains plays a role."""
    names = {block.name for chain in chains for block in head_report.blocks_of(chain)}
    return any(role.block in names for role in head_report.roles)


def _role_height(head_report: HeadReport, chains: Sequence[str]) -> float:
    """Inches of a run's maps; of one none of whose heads plays a role, those of a line."""
    if not _plays(head_report, chains):
        return 0.3
    return 0.75 + 0.3 * max(len(head_report.blocks_of(chain)) for chain in chains)


def _kinds() -> Iterator[tuple[str, str]]:
    notes = ("key less query", "↓ to the dependent, ↑ to the governor", "one of the two rarest")
    for (kind, colour), note in zip(KINDS.items(), notes):
        yield f"{kind} ({note})", colour


def _roles(axis: Any, head_report: HeadReport, chain: str, width: float) -> None:
    blocks = head_report.blocks_of(chain)
    heads = max(block.heads for block in blocks)
    axis.set_axis_on()
    axis.set(xlim=(-0.5, heads - 0.5), ylim=(-0.5, len(blocks) - 0.5))
    axis.set_title(chain if _plays(head_report, [chain]) else f"{chain}: no role", loc="left")
    axis.set_xticks(range(heads) if heads <= 16 else _ticks(heads))
    _name_layers(axis, blocks, range(len(blocks)))
    axis.set_xticks(np.arange(heads - 1) + 0.5, minor=True)
    axis.set_yticks(np.arange(len(blocks) - 1) + 0.5, minor=True)
    axis.grid(which="minor")
    axis.tick_params(which="minor", length=0)
    found = role_map(head_report.roles)
    for row, block in enumerate(blocks):
        for head, roles in found.get(block.name, {}).items():
            _cell(axis, head, row, roles, width)


def _cell(axis: Any, head: int, row: int, roles: Sequence[Role], width: float) -> None:
    """Bands for the kinds of roles that a head plays, one above the other.

    Args:
        axis: Where to draw.
        head: The cell's column.
        row: The cell's row.
        roles: What the head plays.
        width: Of the cell, in inches; letters get the size that fits.
    """
    kinds = [kind for kind in KINDS if any(role.role == kind for role in roles)]
    for place, kind in enumerate(kinds):
        height = 1 / len(kinds)
        bottom = row + 0.5 - (place + 1) * height
        axis.add_patch(Rectangle((head - 0.5, bottom), 1, height, color=KINDS[kind], lw=0))
        label = _label([role for role in roles if role.role == kind], width > 0.7)
        size = min(8.0, 16 * height, 115 * width / len(label))
        middle = bottom + height / 2
        axis.text(head, middle, label, ha="center", va="center_baseline", fontsize=size)


def _label(roles: Sequence[Role], long: bool) -> str:
    """The role in a few characters; of several relations the one furthest above its baseline.

    Args:
        roles: Of one kind.
        long: Say how many more there are.
    """
    best = max(roles, key=lambda role: role.score - (role.baseline or 0))
    if best.role == "positional":
        return best.detail
    if best.role == "rare-word":
        return "rare"
    relation, direction = best.detail.split(" to ")
    more = f" +{len(roles) - 1}" if long and len(roles) > 1 else ""
    return f"{relation}{'↓' if direction == 'dependent' else '↑'}{more}"


def _chains(head_reports: Sequence[HeadReport]) -> list[str]:
    return [
        chain
        for chain in ATTENTION_TYPES
        if any(chain in each.attention_types for each in head_reports)
    ]


def _each(row: Any, chains: Sequence[str], head_report: HeadReport) -> Iterator[tuple[Any, str]]:
    """The axes of the chains that a run has."""
    return (
        (axis, chain) for axis, chain in zip(row, chains) if chain in head_report.attention_types
    )
