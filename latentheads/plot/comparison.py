"""Several networks side by side: recipes, numbers of heads, what is left of a pruned one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from latentheads.metrics.scores import CHIEF, SCORES, chief_score
from latentheads.plot.canvas import (
    WIDTH,
    Picture,
    add_legend,
    check_some,
    escape,
    label_of,
    read_spread,
    write_title,
)
from latentheads.plot.style import (
    BLUE,
    GREEN,
    GREY,
    MARKERS,
    RED,
    TRUTH,
    VIOLET,
    colours_of,
    in_style,
)
from latentheads.plot.training import truth_label

__all__ = ["draw_gaps", "draw_pruning", "draw_recipes", "draw_sweep"]

TERMS = (
    ("elbo", "bound (ELBO)", "o", BLUE),
    ("iwae", "tighter bound (IWAE)", "^", GREEN),
    ("exact", "exact log p", "D", VIOLET),
    ("log_likelihood", "log-likelihood term", "|", RED),
    ("plug_in", "plug-in (no bound)", "x", GREY),
)
"""The figures that are drawn of a recipe: key in a row, title, mark and colour."""


@in_style
def draw_recipes(rows: list[dict[str, Any]], title: str = "") -> Figure:
    """Draws the bound of every recipe with its terms and intervals, a row a recipe.

    Args:
        rows: One dictionary a recipe with ``recipe`` and ``NAME``, ``NAME_low``, ``NAME_high`` for
            elbo, iwae, exact, log_likelihood and plug_in; any of them may be missing, and
            ``truth``, with ``truth_sentences`` of ``sentences`` whose truth it is.
        title: What was trained.
    """
    check_some("rows", rows)
    terms = [term for term in TERMS if any(row.get(term[0]) is not None for row in rows)]
    half = 0.07 * len(terms)
    figure = Picture(WIDTH, 1.8 + (0.25 + 0.13 * len(terms)) * len(rows))
    axis = figure.subplots()
    places = np.arange(len(rows))
    for shift, (name, label, mark, colour) in zip(np.linspace(-half, half, len(terms)), terms):
        middle, spread = read_spread(rows, name)
        dots: dict[str, Any] = {"fmt": mark, "color": colour, "markersize": 6, "linewidth": 1.2}
        axis.errorbar(middle, places + shift, xerr=spread, label=label, **dots)
    for place in places[1:]:
        axis.axhline(place - 0.5, color="0.9", linewidth=0.8, zorder=0)
    if rows[0].get("truth") is not None:
        axis.axvline(rows[0]["truth"], label=truth_label(rows[0]), **TRUTH)
    axis.set_yticks(places, [escape(row["recipe"]) for row in rows])
    axis.set_ylim(len(rows) - 0.5, -0.5)
    axis.tick_params(axis="y", length=0)
    axis.set_xlabel("nats per target token (test): further right is better")
    axis.grid(axis="x")
    add_legend(figure)
    write_title(figure, f"Bounds on log p, and what is none\n{title}")
    return figure


@in_style
def draw_gaps(models: Mapping[str, Sequence[Mapping[str, Any]]], title: str = "") -> Figure:
    """Draws what each guide lacks of the exact posterior, a bar a guide and a panel a model.

    Args:
        models: The guides of every model, by what the model is: each with ``recipe``, ``gap``,
            ``gap_low`` and ``gap_high``; the interval may be missing.
        title: What the text is.
    """
    check_some("models", models)
    heights = [len(rows) for rows in models.values()]
    figure = Picture(WIDTH, 1.3 + 0.5 * len(models) + 0.27 * sum(heights))
    axes = figure.subplots(
        len(models), sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights}
    )
    for axis, (model, rows) in zip(axes.flat, models.items(), strict=True):
        middle, spread = read_spread(rows, "gap")
        reach = {"error_kw": {"elinewidth": 1.2, "capsize": 3}}
        bars = axis.barh(range(len(rows)), middle, xerr=spread, height=0.6, color=BLUE, **reach)
        axis.bar_label(bars, labels=[f"{gap:.4f}" for gap in middle], padding=6)
        axis.set_yticks(range(len(rows)), [escape(row["recipe"]) for row in rows])
        axis.invert_yaxis()
        axis.tick_params(axis="y", length=0)
        axis.margins(x=0.12)
        axis.set_title(escape(model), loc="left")
        axis.grid(axis="x")
    axes[-1, 0].set_xlabel("nats per target token (0: the exact posterior)")
    write_title(figure, f"What each guide lacks of the exact posterior\n{title}")
    return figure


@in_style
def draw_pruning(points: list[dict[str, Any]], title: str = "") -> Figure:
    """Draws what is left of a run against the heads that are left: quality, size and speed.

    Args:
        points: Those of a curve, the whole network first.
        title: What was pruned.
    """
    heads = [point["heads"] for point in points]
    score = chief_score(points[0]["test"])
    figure = Picture(WIDTH, 3.3)
    axes = figure.subplots(1, 2 if score is None else 3, squeeze=False)
    *quality, cost = axes.flat
    if score is not None:
        values = [point["test"][score] for point in points]
        quality[0].plot(heads, values, "D-", color=VIOLET, label=SCORES[score].heading)
        quality[0].set_ylabel(f"{SCORES[score].heading} (test)")
        quality[0].set_ylim(bottom=0)
    for name, label, line, colour in (
        ("elbo", "bound (ELBO)", "o-", BLUE),
        ("plug_in", "plug-in network (no bound)", "x:", GREY),
    ):
        values = [point["valid"][name] for point in points]
        quality[-1].plot(heads, values, line, color=colour, label=label)
    quality[-1].set_ylabel("nats per target token (validation)")
    cost.plot(heads, [point["speed"] for point in points], "^-", color=GREEN, label="speed")
    share = [point["parameters"] / points[0]["parameters"] for point in points]
    cost.plot(heads, share, "s--", color=RED, label="parameters")
    cost.set_ylabel("ratio to the whole network")
    cost.set_ylim(bottom=0)
    for axis in axes.flat:
        axis.set_xlabel("heads left")
        axis.grid()
    add_legend(figure, columns=5)
    write_title(figure, f"What is left when heads are removed\n{title}")
    return figure


@in_style
def draw_sweep(rows: list[dict[str, Any]], title: str = "") -> Figure:
    """Draws quality against the number of heads, a line a recipe, as the paper's figure 3.

    Args:
        rows: One dictionary a recipe and number of heads, with intervals, as a sweep writes them.
        title: What was trained.
    """
    check_some("rows", rows)
    shown = [
        (name, label)
        for name, label in (
            *((name, f"{SCORES[name].heading} (test)") for name in CHIEF),
            ("perplexity_plug_in", "perplexity by word\nplug-in (test)"),
            ("plug_in", "plug-in (no bound)\nnats per target token (test)"),
            ("elbo", "bound (ELBO)\nnats per target token (test)"),
            ("parameters", "parameters"),
        )
        if any(name in row for row in rows)
    ]
    columns = 2 if len(shown) > 1 else 1
    lines = -(-len(shown) // columns)
    figure = Picture(WIDTH, 1.0 + 2.4 * lines)
    axes = figure.subplots(lines, columns, squeeze=False)
    for axis in axes.flat[len(shown) :]:
        axis.set_axis_off()
    recipes = list(dict.fromkeys(row["recipe"] for row in rows))
    marks = dict(zip(recipes, zip(colours_of(len(recipes)), MARKERS * len(recipes))))
    ticks = sorted({row["heads"] for row in rows})
    for axis, (name, label) in zip(axes.flat, shown):
        for recipe, (colour, mark) in marks.items():
            mine = [row for row in rows if row["recipe"] == recipe]
            middle, spread = read_spread(mine, name)
            heads = [row["heads"] for row in mine]
            axis.errorbar(
                heads, middle, spread, fmt=f"{mark}-", color=colour, label=label_of(recipe)
            )
        axis.set_xscale("log", base=2)
        axis.set_xticks(ticks, [str(tick) for tick in ticks])
        axis.set_xlabel("heads of every block")
        axis.set_ylabel(label)
        axis.grid()
    add_legend(figure, columns=4)
    write_title(figure, f"Number of heads at constant width\n{title}")
    return figure
