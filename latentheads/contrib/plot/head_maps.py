"""Plots the heads of several runs on one scale: divergence by layer, maps of measures, roles."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from torch import Tensor

from latentheads.checks import check_not_empty
from latentheads.contrib.heads.divergence import Divergence, pair_mean
from latentheads.contrib.heads.head_report import HeadReport
from latentheads.contrib.heads.roles import Role, role_map
from latentheads.contrib.plot.canvas import (
    WIDTH,
    Picture,
    add_legend,
    colour_scale,
    draw_map,
    escape,
    legend_label,
    pad_rows,
    shorten,
    show_whole_markers,
    write_notice,
    write_title,
)
from latentheads.contrib.plot.divergence import NO_PAIRS
from latentheads.contrib.plot.style import (
    GREY,
    MARKERS,
    distinct_colours,
    in_style,
)
from latentheads.errors import shown
from latentheads.names import ATTENTION_TYPES, Block

AVERAGES = "Divergence between the heads of each layer"
MAX_LAYERS = 6
"""Maximum number of layers that all get a tick label."""
MAX_COLUMNS = 12
"""Maximum number of heads side by side in a role map of several attention types."""
MAX_NAME = 48
"""Maximum length of a row's name."""
QUANTITIES = {
    "confidence": "confidence\nmean largest weight",
    "entropy": "entropy\nnats",
    "importance": "importance by gradient\nnorm of a block: 1",
    "relevance": "relevance\nshare of the block",
    "cosine": "cosine to other\nheads' outputs",
}
OFFSET = "no role: most frequent offset; in wide cells also its share of queries"
WIDE_CELL = 0.45
"""Minimum width in inches of a cell that has the share, too."""
KINDS = {
    "positional": ("#9ecae1", " (key minus query position)"),
    "syntactic": ("#fdae6b", " (↓ to the dependent, ↑ to the governor)"),
    "rare-word": ("#8fd0b9", " (one of the two rarest words)"),
}
"""Colour of each kind of role, and the explanation after its label."""
OTHER_KIND = ("#d4b9da", "")
"""That of a kind which is not of the library."""


def _ticks(number: int) -> range:
    return range(0, number, 1 if number <= 8 else max(4, number // 8))


@in_style
def draw_averages(head_reports: HeadReport | Sequence[HeadReport], title: str = "") -> Figure:
    """Draws the average JSD of every layer, one line per run: per sentence above, per query below.

    Args:
        head_reports: The analysis of the heads of a run, or of each of several runs.
        title: Second line of the title.
    """
    head_reports = _list_reports(head_reports)
    attention_types = _types_with_pairs(head_reports)
    if not attention_types:
        return _draw_nothing(f"{AVERAGES}\n{title}", NO_PAIRS)
    figure = Picture(WIDTH, 5.2)
    axes = figure.subplots(2, len(attention_types), squeeze=False, sharex="col", sharey="row")
    for index, head_report in enumerate(head_reports):
        per_sentence, per_query = head_report.divergence, head_report.divergence_per_query
        for row, divergence in zip(axes, (per_sentence, per_query)):
            for axis, attention_type in _panels(row, attention_types, head_report):
                blocks = head_report.blocks_of(attention_type)
                _draw_line(axis, divergence, blocks, index, head_report.name)
    for (upper, lower), attention_type in zip(axes.T, attention_types):
        blocks_of_runs = [report.blocks_of(attention_type) for report in head_reports]
        layers = sorted({block.layer for blocks in blocks_of_runs for block in blocks})
        upper.set_title(attention_type)
        lower.set_xticks(layers if len(layers) <= MAX_LAYERS else _ticks(layers[-1] + 1))
        lower.set_xlabel("layer")
        upper.grid(True)
        lower.grid(True)
    labels = ("nats per sentence\n(summed over queries)", "nats per query\n(at most ln 2 = 0.693)")
    for row, label in zip(axes, labels):
        row[0].set_ylabel(f"average JSD of head pairs\n{label}")
        maxima = [axis.dataLim.y1 for axis in row if np.isfinite(axis.dataLim.y1)]
        row[0].set_ylim(0, 1.08 * max(maxima, default=1.0))
    show_whole_markers(figure)
    add_legend(figure)
    write_title(figure, f"{AVERAGES}\n{title}")
    return figure


def _types_with_pairs(head_reports: Sequence[HeadReport]) -> list[str]:
    """The attention types of which a block has two active heads to compare, in a run."""
    return [
        attention_type
        for attention_type in _attention_types(head_reports)
        if any(
            pair_mean(head_report.divergence.summed[block.site()]) is not None
            for head_report in head_reports
            for block in head_report.blocks_of(attention_type)
        )
    ]


def _draw_nothing(title: str, notice: str) -> Figure:
    """A figure that states why nothing is shown."""
    figure = Picture(WIDTH, 1.4)
    axis = figure.subplots()
    axis.set_axis_off()
    write_notice(axis, notice)
    write_title(figure, title)
    return figure


def _draw_line(
    axis: Any, divergence: Divergence, blocks: Sequence[Block], index: int, name: str
) -> None:
    means = [pair_mean(divergence.summed[block.site()]) for block in blocks]
    values = [np.nan if mean is None else mean for mean in means]
    layers = [block.layer for block in blocks]
    colour, marker = distinct_colours(index + 1)[index], MARKERS[index % len(MARKERS)]
    axis.plot(layers, values, marker=marker, color=colour, label=legend_label(name))


@in_style
def draw_maps(head_reports: HeadReport | Sequence[HeadReport], title: str = "") -> Figure:
    """Draws layer-by-head maps, one column per measure and one row per attention type and run.

    Args:
        head_reports: The analysis of the heads of a run, or of each of several runs.
        title: Second line of the title.
    """
    head_reports = _list_reports(head_reports)
    maps_of_runs = [head_report.maps for head_report in head_reports]
    names = [name for name in QUANTITIES if any(name in maps for maps in maps_of_runs)]
    rows = [
        (head_report, head_report.blocks_of(attention_type), maps)
        for attention_type in _attention_types(head_reports)
        for head_report, maps in zip(head_reports, maps_of_runs)
        if attention_type in head_report.attention_types
    ]
    heights = [0.22 + max(0.5, 0.15 * len(blocks)) for _, blocks, _ in rows]
    figure = Picture(WIDTH, 1.5 + sum(heights))
    axes = figure.subplots(len(rows), len(names), height_ratios=heights, squeeze=False)
    for column, name in zip(axes.T, names):
        drawn = [(blocks, maps[name]) for _, blocks, maps in rows if name in maps]
        scale = colour_scale(
            values[block.name].numpy() for blocks, values in drawn for block in blocks
        )
        image = ScalarMappable()
        for axis, (_, blocks, maps) in zip(column, rows):
            if name in maps:
                image = _draw_map(axis, blocks, maps[name], scale)
            else:
                axis.set_axis_off()
        pad = 0.1 / sum(heights)
        bar = figure.colorbar(image, ax=column, location="top", aspect=12, shrink=0.95, pad=pad)
        bar.set_label(QUANTITIES[name], fontsize=8)
        ticks = _scale_ticks(scale["vmin"], scale["vmax"])
        bar.set_ticks(ticks, labels=[f"{tick:g}".replace("-", "\N{MINUS SIGN}") for tick in ticks])
        column[-1].set_xlabel(_name_heads(head_reports))
    _label_rows(axes, [f"{blocks[0].attention_type}, {report.name}" for report, blocks, _ in rows])
    write_title(figure, f"Measures of every head\n{title}")
    return figure


def _label_rows(axes: Any, names: Sequence[str]) -> None:
    """Labels every row, and its layers once."""
    for row, name in zip(axes, names):
        row[0].set_ylabel("layer")
        row[0].set_title(shorten(name, MAX_NAME), loc="left", pad=3)
        for axis in row[1:]:
            axis.tick_params(labelleft=False)
    for row, below in pairwise(axes):
        for axis, next_axis in zip(row, below):
            axis.tick_params(labelbottom=axis.get_xlim() != next_axis.get_xlim())


def _scale_ticks(low: float, high: float) -> list[float]:
    """Ticks of a colour scale, so few that they do not overlap: 0 and a round value at each end."""
    power = 10.0 ** math.floor(math.log10(high))
    # .9: a logarithm that is rounded may be that of a power a little above
    end = max(factor * power for factor in (0.9, 1, 1.5, *range(2, 10)) if factor * power <= high)
    return [-end, 0.0, end] if low < 0 else [0.0, end]


def _draw_map(
    axis: Any, blocks: Sequence[Block], values: dict[str, Tensor], scale: dict[str, Any]
) -> Any:
    """Draws layers by heads, padded with grey."""
    grid = pad_rows(values[block.name].tolist() for block in blocks)
    image = draw_map(axis, grid, origin="lower", **scale)
    axis.set_xticks(_ticks(grid.shape[1]))
    _label_layers(axis, blocks, _ticks(len(blocks)))
    return image


def _label_layers(axis: Any, blocks: Sequence[Block], rows: Sequence[int]) -> None:
    """Labels some rows with their layers; layers without attention have no row."""
    axis.set_yticks(rows, [str(blocks[row].layer) for row in rows])


@in_style
def draw_roles(head_reports: HeadReport | Sequence[HeadReport], title: str = "") -> Figure:
    """Draws the roles of all heads, one row per run, attention types side by side where they fit.

    Of a head without a role it shows the most frequent offset and its share of queries.

    Args:
        head_reports: The analysis of the heads of a run, or of each of several runs.
        title: Second line of the title.
    """
    head_reports = _list_reports(head_reports)
    attention_types = _attention_types(head_reports)
    max_heads = max(block.heads for head_report in head_reports for block in head_report.blocks)
    columns = len(attention_types) if max_heads * len(attention_types) <= MAX_COLUMNS else 1
    groups = [
        attention_types[start : start + columns]
        for start in range(0, len(attention_types), columns)
    ]
    rows = [
        (head_report, types)
        for head_report in head_reports
        for types in groups
        if set(types) & set(head_report.attention_types)
    ]
    heights = [_role_height(head_report, types) for head_report, types in rows]
    figure = Picture(WIDTH, 1.4 + sum(heights))
    axes = figure.subplots(len(rows), columns, height_ratios=heights, squeeze=False)
    width = (WIDTH - 0.8) / (columns * max_heads)
    for row, (head_report, types) in zip(axes, rows):
        for axis in row:
            axis.set_axis_off()
        for axis, attention_type in _panels(row, types, head_report):
            _draw_roles(axis, head_report, attention_type, width)
        row[0].set_ylabel("layer")
        type_title = row[0].get_title(loc="left")
        row[0].set_title(f"{shorten(head_report.name, MAX_NAME)}\n{type_title}", loc="left")
    for axis in axes[-1]:
        axis.set_xlabel(_name_heads(head_reports))
    figure.legend(handles=_legend_entries(head_reports), loc="outside lower center", ncols=2)
    write_title(figure, f"Roles of heads\n{title}")
    return figure


def _list_reports(head_reports: HeadReport | Sequence[HeadReport]) -> Sequence[HeadReport]:
    """Makes a list of one report or several."""
    reports = [head_reports] if isinstance(head_reports, HeadReport) else head_reports
    if not isinstance(reports, Sequence) or not all(isinstance(r, HeadReport) for r in reports):
        raise ValueError(
            f"head_reports must be those of lh.contrib.heads.analyse(run), got {shown(reports)}"
        )
    check_not_empty("head_reports", reports)
    return reports


def _name_heads(head_reports: Sequence[HeadReport]) -> str:
    """What maps number: heads, or slots of heads that each task selects."""
    slots = [b.site() in report.divergence.slots for report in head_reports for b in report.blocks]
    return "slot" if all(slots) else "head or slot" if any(slots) else "head"


def _has_role(head_report: HeadReport, attention_types: Sequence[str]) -> bool:
    """Whether a head of these attention types has a role."""
    blocks_of_types = [head_report.blocks_of(name) for name in attention_types]
    names = {block.name for blocks in blocks_of_types for block in blocks}
    return any(role.block in names for role in head_report.roles)


def _role_height(head_report: HeadReport, attention_types: Sequence[str]) -> float:
    """Height of a run's maps in inches; rows with roles are higher than those with offsets only."""
    row = 0.3 if _has_role(head_report, attention_types) else 0.2
    return 0.75 + row * max(len(head_report.blocks_of(name)) for name in attention_types)


def _legend_entries(head_reports: Sequence[HeadReport]) -> list[Patch]:
    """The kinds of roles that heads have, and what grey numbers are."""
    kinds = _kinds(role for head_report in head_reports for role in head_report.roles)
    styles = [(kind, *KINDS.get(kind, OTHER_KIND)) for kind in kinds]
    entries = [Patch(color=colour, label=escape(f"{kind}{note}")) for kind, colour, note in styles]
    return [*entries, Patch(facecolor="white", edgecolor=GREY, label=OFFSET)]


def _kinds(roles: Iterable[Role]) -> list[str]:
    """The kinds of some roles, those of the library first."""
    present = list(dict.fromkeys(role.role for role in roles))
    own = [kind for kind in present if kind not in KINDS]
    return [kind for kind in KINDS if kind in present] + own


def _draw_roles(axis: Any, head_report: HeadReport, attention_type: str, width: float) -> None:
    blocks = head_report.blocks_of(attention_type)
    heads = max(block.heads for block in blocks)
    axis.set_axis_on()
    axis.set(xlim=(-0.5, heads - 0.5), ylim=(-0.5, len(blocks) - 0.5))
    suffix = "" if _has_role(head_report, [attention_type]) else ": no role"
    axis.set_title(f"{attention_type}{suffix}", loc="left")
    axis.set_xticks(range(heads) if heads <= 16 else _ticks(heads))
    _label_layers(axis, blocks, range(len(blocks)))
    axis.set_xticks(np.arange(heads - 1) + 0.5, minor=True)
    axis.set_yticks(np.arange(len(blocks) - 1) + 0.5, minor=True)
    axis.grid(which="minor")
    axis.tick_params(which="minor", length=0)
    roles_of_blocks = role_map(head_report.roles)
    for row, block in enumerate(blocks):
        roles_of_heads = roles_of_blocks.get(block.name, {})
        for head in range(block.heads):
            if head in roles_of_heads:
                _draw_cell(axis, head, row, roles_of_heads[head], width)
            else:
                label = _describe_offset(head_report, block, head, width)
                style = {"ha": "center", "va": "center_baseline", "color": GREY}
                size = min(7.0, 100 * width / max(1, len(label)))
                axis.text(head, row, label, fontsize=size, **style)


def _draw_cell(axis: Any, head: int, row: int, roles: Sequence[Role], width: float) -> None:
    """Draws one band for each kind of role of a head."""
    kinds = _kinds(roles)
    for index, kind in enumerate(kinds):
        height = 1 / len(kinds)
        bottom = row + 0.5 - (index + 1) * height
        colour, _ = KINDS.get(kind, OTHER_KIND)
        axis.add_patch(Rectangle((head - 0.5, bottom), 1, height, color=colour, lw=0))
        label = _label([role for role in roles if role.role == kind], width > 0.7)
        size = min(8.0, 16 * height, 115 * width / len(label))
        middle = bottom + height / 2
        axis.text(head, middle, escape(label), ha="center", va="center_baseline", fontsize=size)


def _describe_offset(head_report: HeadReport, block: Block, head: int, width: float) -> str:
    """The most frequent offset of an active head and, in a wide cell, its share."""
    offset, share = (
        float(values[block.name][head])
        for values in (head_report.positional.offset, head_report.positional.share)
    )
    if math.isnan(share):
        return ""
    return f"{offset:+.0f}, {share:.0%}" if width > WIDE_CELL else f"{offset:+.0f}"


def _label(roles: Sequence[Role], with_count: bool) -> str:
    """A short label of roles; of several relations the one furthest above its baseline."""
    best = max(roles, key=lambda role: role.score - (role.baseline or 0))
    if best.role == "rare-word":
        return "rare"
    if best.role != "syntactic":
        return best.detail
    relation, direction = best.detail.split(" to ")
    suffix = f" +{len(roles) - 1}" if with_count and len(roles) > 1 else ""
    return f"{relation}{'↓' if direction == 'dependent' else '↑'}{suffix}"


def _attention_types(head_reports: Sequence[HeadReport]) -> list[str]:
    present = {name for head_report in head_reports for name in head_report.attention_types}
    return [name for name in ATTENTION_TYPES if name in present]


def _panels(
    row: Any, attention_types: Sequence[str], head_report: HeadReport
) -> Iterator[tuple[Any, str]]:
    """Pairs of axes and attention type, for the types that a run has."""
    panels = zip(row, attention_types)
    return ((axis, name) for axis, name in panels if name in head_report.attention_types)
