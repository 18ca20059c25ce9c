"""Plots that compare networks: recipes, gaps of guides, numbers of heads, pruning curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from latentheads.checks import check_not_empty
from latentheads.contrib.plot.canvas import (
    WIDTH,
    Picture,
    add_legend,
    escape,
    fold,
    format_nats,
    legend_label,
    show_whole_markers,
    values_with_intervals,
    write_title,
)
from latentheads.contrib.plot.style import (
    BLUE,
    GREEN,
    GREY,
    MARKERS,
    RED,
    REFERENCE_LINE,
    VIOLET,
    distinct_colours,
    in_style,
)
from latentheads.contrib.plot.training import true_log_prob_label
from latentheads.metrics.scores import PRIMARY_SCORES, SCORES, primary_score
from latentheads.metrics.seeds import DIFFERENCES

TERMS = (
    ("elbo", "bound (ELBO)", "o", BLUE),
    ("iwae", "tighter bound (IWAE)", "^", GREEN),
    ("exact", "exact log p", "D", VIOLET),
    ("log_likelihood", "log-likelihood term", "|", RED),
    ("plug_in", "plug-in (no bound)", "x", GREY),
)
"""The values shown for a recipe: key in a row, label, marker and colour."""

BOUNDS = ("elbo", "iwae", "plug_in")
"""Values beside which a network without noise has its exact log p."""

BESIDE = 0.03
"""Share of a logarithmic axis between the recipes at one number of heads."""

DIGIT = 0.07
"""Width in inches of a digit of a tick label."""


@in_style
def draw_recipes(rows: list[dict[str, Any]], title: str = "", *, one_model: bool = False) -> Figure:
    """Draws the bound of every recipe with its terms and intervals, one row per recipe.

    Where seeds are paired, a second panel has the differences to the first recipe with their
    intervals: those of the first panel overlap although the difference is certain, since what seeds
    have in common is in them. Models differ in exact log p, or in IWAE where there is none, and
    guides of one model in their bounds; a difference of the ELBOs of two models is not shown.

    Args:
        rows: One dictionary per recipe with ``recipe``; with ``NAME``, ``NAME_low``, ``NAME_high``
            for elbo, iwae, exact, log_likelihood and plug_in, any of which may be missing; with
            ``truth``, the true log p of ``truth_sentences`` of ``sentences``; and with
            ``difference``, ``difference_exact`` and ``difference_iwae`` and their ends, as
            ``latentheads.metrics.seeds.summarise`` makes them.
        title: Second line of the title.
        one_model: All rows are of guides of one model with the same weights.
    """
    check_not_empty("rows", rows)
    compared = ("elbo", "iwae") if one_model else ("exact", "iwae")
    rows = [_without_estimates(row) for row in rows]
    terms = [term for term in TERMS if any(row.get(term[0]) is not None for row in rows)]
    paired = [
        (name, *term[1:])
        for name, score in DIFFERENCES.items()
        for term in TERMS
        if term[0] == score in compared
        and any(math.isfinite(row.get(f"{name}_low", math.nan)) for row in rows[1:])
    ]
    figure = Picture(WIDTH, 1.8 + (0.25 + 0.13 * len(terms)) * len(rows))
    panels: Any = figure.subplots(
        1, 2 if paired else 1, squeeze=False, sharey=True, width_ratios=[3, 2] if paired else None
    )
    values, *differences = panels.flat
    _draw_terms(values, rows, terms)
    if all(row.get("truth") == rows[0].get("truth") for row in rows):  # of one text
        _draw_true_log_prob(values, rows[0])
    values.set_yticks(range(len(rows)), [fold(row["recipe"]) for row in rows])
    values.set_ylim(len(rows) - 0.5, -0.5)
    values.set_xlabel("nats per target token (test):\nbounds and log p are better further right")
    for axis in differences:
        _draw_terms(axis, [{}, *rows[1:]], paired)
        axis.axvline(0, color=GREY, linewidth=1.0, zorder=0)
        what = "bounds on one log p" if one_model else "log p, or its bound IWAE"
        axis.set_xlabel(f"difference to the first row,\npaired by seed:\n{what}")
    for axis in panels.flat:
        axis.tick_params(axis="y", length=0)
        axis.xaxis.set_major_locator(MaxNLocator(5 if differences else 8, steps=[1, 2, 5, 10]))
        axis.grid(axis="x")
    add_legend(figure)
    write_title(figure, f"Bounds on log p, and other values\n{title}")
    return figure


def _without_estimates(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row without what only estimates its exact log p, such as the plug-in value."""
    if row.get("exact") is None:
        return dict(row)
    return {n: v for n, v in row.items() if n not in SCORES or SCORES[n].estimates != "exact"}


def _draw_terms(
    axis: Any, rows: Sequence[Mapping[str, Any]], terms: Sequence[tuple[str, str, str, str]]
) -> None:
    """Draws values of rows with their intervals, one below the other."""
    positions = np.arange(len(rows))
    half = 0.07 * len(terms)
    shifts = np.linspace(-half, half, len(terms)) if len(terms) > 1 else [0.0]
    for shift, (name, label, marker, colour) in zip(shifts, terms):
        values, intervals = values_with_intervals(rows, name)
        style: dict[str, Any] = {"fmt": marker, "color": colour, "markersize": 6, "linewidth": 1.2}
        axis.errorbar(values, positions + shift, xerr=intervals.tolist(), label=label, **style)
    for position in positions[1:]:
        axis.axhline(position - 0.5, color="0.9", linewidth=0.8, zorder=0)


def _draw_true_log_prob(axis: Any, row: Mapping[str, Any]) -> None:
    """Draws the line of the true log p, if it is known; if it is far away, a note has its value."""
    if row.get("truth") is None:
        return
    truth, label = float(row["truth"]), true_log_prob_label(row)
    low, high = axis.get_xlim()
    if 2 * (high - low) > max(high, truth) - min(low, truth):
        axis.axvline(truth, label=label, **REFERENCE_LINE)
        return
    number = f"{truth:.2f}".replace("-", "\N{MINUS SIGN}")
    text = f"{label}: {number}"
    note = f"{text} \N{RIGHTWARDS ARROW}" if truth > high else f"\N{LEFTWARDS ARROW} {text}"
    axis.set_title(note, loc="right" if truth > high else "left", fontsize=8)


@in_style
def draw_gaps(models: Mapping[str, Sequence[Mapping[str, Any]]], title: str = "") -> Figure:
    """Draws the gap of each guide to the exact posterior, a bar per guide and a panel per model.

    Args:
        models: The rows of the guides of every model, by name of the model, each with ``recipe``,
            ``gap``, ``gap_low`` and ``gap_high``; the interval may be missing.
        title: Second line of the title.
    """
    check_not_empty("models", models)
    heights = [len(rows) for rows in models.values()]
    figure = Picture(WIDTH, 1.3 + 0.5 * len(models) + 0.27 * sum(heights))
    axes = figure.subplots(
        len(models), sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights}
    )
    for axis, (model, rows) in zip(axes.flat, models.items(), strict=True):
        gaps, intervals = values_with_intervals(rows, "gap")
        style: dict[str, Any] = {"height": 0.6, "color": BLUE}
        style["error_kw"] = {"elinewidth": 1.2, "capsize": 3}
        bars = axis.barh(range(len(rows)), gaps, xerr=intervals.tolist(), **style)
        axis.bar_label(bars, labels=list(map(format_nats, gaps)), padding=6)
        axis.set_yticks(range(len(rows)), [fold(row["recipe"]) for row in rows])
        axis.set_ylim(len(rows) - 0.5, -0.5)
        axis.tick_params(axis="y", length=0)
        axis.margins(x=0.12)
        axis.set_title(escape(model), loc="left")
        axis.grid(axis="x")
    axes[-1, 0].set_xlabel("nats per target token (0: the exact posterior)")
    write_title(figure, f"Gap of each guide to the exact posterior\n{title}")
    return figure


@in_style
def draw_pruning(points: list[dict[str, Any]], title: str = "") -> Figure:
    """Draws quality, size and speed of a pruned run against the number of heads left.

    Args:
        points: Those of a pruning curve, the whole network first.
        title: Second line of the title.
    """
    heads = [point["heads"] for point in points]
    metric = primary_score(points[0]["test"])
    figure = Picture(WIDTH, 3.3)
    axes = figure.subplots(1, 2 if metric is None else 3, squeeze=False)
    *quality, cost = axes.flat
    if metric is not None:
        values = [point["test"][metric] for point in points]
        quality[0].plot(heads, values, "D-", color=VIOLET, label=SCORES[metric].heading)
        quality[0].set_ylabel(f"{SCORES[metric].heading} (test)")
        quality[0].set_ylim(bottom=0)
    has_exact = all(point["valid"].get("exact") is not None for point in points)
    exact, plug_in = ("exact", "exact log p"), ("plug_in", "plug-in network (no bound)")
    for name, label, line, colour in (
        ("elbo", "bound (ELBO)", "o-", BLUE),
        (*(exact if has_exact else plug_in), "x:", VIOLET if has_exact else GREY),
    ):
        values = [point["valid"][name] for point in points]
        quality[-1].plot(heads, values, line, color=colour, label=label)
    quality[-1].set_ylabel("nats per target token\n(validation)")
    cost.plot(heads, [point["speed"] for point in points], "^-", color=GREEN, label="speed")
    share = [point["parameters"] / points[0]["parameters"] for point in points]
    cost.plot(heads, share, "s--", color=RED, label="parameters")
    cost.set_ylabel("ratio to the whole network")
    cost.set_ylim(bottom=0)
    for axis in axes.flat:
        axis.set_xlabel("heads left")
        axis.grid()
    show_whole_markers(figure)
    add_legend(figure, columns=5)
    write_title(figure, f"Pruning: quality, size and speed by number of heads\n{title}")
    return figure


@in_style
def draw_sweep(rows: list[dict[str, Any]], title: str = "") -> Figure:
    """Draws quality against the number of heads, one line per recipe, as figure 3 of the paper.

    A network without noise has an exact log p, and no looser bound: it stands in the panels of the
    others' bounds with hollow markers. At each number of heads recipes are shown side by side, so
    that no interval hides another.

    Args:
        rows: One dictionary per recipe and number of heads, with intervals, as a sweep writes them.
        title: Second line of the title.
    """
    check_not_empty("rows", rows)
    panels = [
        (name, label)
        for name, label in (
            *((name, f"{SCORES[name].heading} (test)") for name in PRIMARY_SCORES),
            ("perplexity_exact", "perplexity by word\nexact (test)"),
            ("perplexity_plug_in", "perplexity by word\nplug-in (test)"),
            ("exact", "exact log p\nnats per target token (test)"),
            ("plug_in", "plug-in (no bound)\nnats per target token (test)"),
            ("iwae", "tighter bound (IWAE)\nnats per target token (test)"),
            ("elbo", "bound (ELBO)\nnats per target token (test)"),
            ("parameters", "parameters"),
        )
        if (all if name.endswith("exact") else any)(name in row for row in rows)
    ]
    columns = 2 if len(panels) > 1 else 1
    lines = -(-len(panels) // columns)
    figure = Picture(WIDTH, 1.0 + 2.4 * lines)
    axes = figure.subplots(lines, columns, squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    recipes = list(dict.fromkeys(row["recipe"] for row in rows))
    styles = dict(zip(recipes, zip(distinct_colours(len(recipes)), MARKERS * len(recipes))))
    ticks = sorted({row["heads"] for row in rows})
    beside = max(ticks[-1] / ticks[0], 2.0) ** BESIDE
    labelled = _space_ticks(ticks, 0.85 * (WIDTH / columns - 1))
    for axis, (name, label) in zip(axes.flat, panels):
        exact = [recipe for recipe in recipes if name in BOUNDS and _has_exact(rows, recipe, name)]
        if 0 < len(exact) < len(recipes):
            label = label.replace("\n", "\n(hollow: exact log p)\n")
        for index, (recipe, (colour, marker)) in enumerate(styles.items()):
            recipe_rows = [row for row in rows if row["recipe"] == recipe]
            values, intervals = values_with_intervals(recipe_rows, name)
            shift = beside ** (index - (len(recipes) - 1) / 2)
            heads = [row["heads"] * shift for row in recipe_rows]
            style: dict[str, Any] = {"fmt": f"{marker}-", "color": colour}
            style["markerfacecolor"] = "white" if recipe in exact else colour
            axis.errorbar(heads, values, intervals, label=legend_label(recipe), **style)
        axis.set_xscale("log", base=2)
        axis.set_xticks(labelled, [str(tick) for tick in labelled])
        axis.set_xticks(ticks, [], minor=True)
        if name == "parameters":
            axis.yaxis.set_major_formatter("{x:,.0f}")
        axis.set_xlabel("heads of every block")
        axis.set_ylabel(label)
        axis.grid()
    add_legend(figure, columns=4)
    write_title(figure, f"Number of heads at constant width\n{title}")
    return figure


def _has_exact(rows: Sequence[Mapping[str, Any]], recipe: str, name: str) -> bool:
    """Whether what a recipe has in the place of a bound is its exact log p."""
    pairs = [(row.get(name), row.get("exact")) for row in rows if row["recipe"] == recipe]
    return all(value is not None and value == exact for value, exact in pairs)


def _space_ticks(ticks: Sequence[int], inches: float) -> list[int]:
    """Selects the ticks of a logarithmic axis whose labels do not overlap, from the last on."""
    octave = inches / max(1e-9, math.log2(ticks[-1] / ticks[0]))
    kept = [ticks[-1]]
    for tick in reversed(ticks[:-1]):
        label_width = DIGIT * (len(str(tick)) + len(str(kept[0])) + 1) / 2
        if octave * math.log2(kept[0] / tick) >= label_width:
            kept.insert(0, tick)
    return kept
