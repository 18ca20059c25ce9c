"""Several networks side by side: recipes, numbers of heads, what is left of a pruned one."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from latentheads.plot.canvas import Picture
from latentheads.plot.training import truth_label

__all__ = ["draw_pruning", "draw_recipes", "draw_sweep"]


def draw_recipes(rows: list[dict[str, Any]]) -> Figure:
    """Draws the bound of every recipe with its terms and intervals, best at the top of the scale.

    Args:
        rows: One dictionary a recipe with ``recipe`` and ``NAME``, ``NAME_low``, ``NAME_high`` for
            elbo, log_likelihood, iwae and plug_in; any of them may be missing, and ``truth``, with
            ``truth_sentences`` of ``sentences`` whose truth it is.
    """
    figure = Picture(max(6.0, 1.5 + 1.3 * len(rows)), 4.8)
    axis = figure.subplots()
    places = np.arange(len(rows))
    styles = (
        ("elbo", "ELBO", "o", "#3b6fb6"),
        ("iwae", "IWAE", "^", "#4a9a5b"),
        ("log_likelihood", "log-likelihood term", "_", "#d98032"),
        ("plug_in", "plug-in (no bound)", "x", "0.5"),
    )
    for shift, (name, label, marker, colour) in zip(np.linspace(-0.24, 0.24, 4), styles):
        ends = (name, f"{name}_low", f"{name}_high")
        values = (np.array([row.get(end, np.nan) for row in rows]) for end in ends)
        middle, least, most = values
        low, high = middle - least, most - middle
        spread = np.nan_to_num(np.stack([low, high])).clip(0)
        axis.errorbar(
            places + shift, middle, spread, fmt=marker, color=colour, label=label, capsize=3
        )
    if rows[0].get("truth") is not None:
        axis.axhline(rows[0]["truth"], color="black", linewidth=0.8, label=truth_label(rows[0]))
    axis.set_xticks(places, [row["recipe"] for row in rows], rotation=30, ha="right")
    axis.set_ylabel("nats per target token (test)")
    axis.set_title("Bounds on log p(y | x), and what is none: higher is better", fontsize=10)
    axis.grid(axis="y", alpha=0.3)
    figure.legend(frameon=False, loc="outside lower center", ncols=3, fontsize=8)
    return figure


def draw_pruning(points: list[dict[str, Any]]) -> Figure:
    """Draws what is left of a run against the heads that are left: quality, size and speed.

    Args:
        points: Those of a curve, the whole network first.
    """
    heads = [point["heads"] for point in points]
    score = next((n for n in ("bleu", "wer") if points[0]["test"].get(n) is not None), "")
    translated = bool(score)
    figure = Picture(4 * (2 + translated), 3.8)
    axes = figure.subplots(1, 2 + translated, squeeze=False)
    *quality, cost = axes.flat
    if translated:
        quality[0].plot(heads, [p["test"][score] for p in points], "o-", color="#3b6fb6")
        quality[0].set_ylabel("BLEU (test)" if score == "bleu" else "WER in % (test)")
        quality[0].set_ylim(bottom=0)
    for name, label, style in (
        ("elbo", "bound (ELBO)", "o-"),
        ("plug_in", "plug-in network (no bound)", "kx:"),
    ):
        values = [point["valid"][name] for point in points]
        quality[-1].plot(heads, values, style, label=label)
    quality[-1].set_ylabel("nats per target token (validation)")
    quality[-1].legend(frameon=False)
    cost.plot(heads, [point["speed"] for point in points], "o-", color="#4a9a5b", label="speed")
    share = [point["parameters"] / points[0]["parameters"] for point in points]
    cost.plot(heads, share, "s--", color="#d98032", label="parameters")
    cost.set_ylabel("ratio to the whole network")
    cost.set_ylim(bottom=0)
    cost.legend(frameon=False)
    for axis in axes.flat:
        axis.set_xlabel("heads left")
        axis.grid(alpha=0.3)
    figure.suptitle("What is left when heads are removed", fontsize=10)
    return figure


def draw_sweep(rows: list[dict[str, Any]]) -> Figure:
    """Draws quality against the number of heads, a line a recipe, as the paper's figure 3.

    Args:
        rows: One dictionary a recipe and number of heads, with intervals, as a sweep writes them.
    """
    shown = [
        (name, label)
        for name, label in (
            ("bleu", "BLEU (test)"),
            ("wer", "WER in % (test)"),
            ("perplexity_plug_in", "perplexity by word\nplug-in (test)"),
            ("plug_in", "plug-in (no bound)\nnats per target token (test)"),
            ("elbo", "bound (ELBO)\nnats per target token (test)"),
            ("parameters", "parameters"),
        )
        if any(name in row for row in rows)
    ]
    figure = Picture(3.8 * len(shown), 4.0)
    axes = figure.subplots(1, len(shown), squeeze=False)
    recipes = list(dict.fromkeys(row["recipe"] for row in rows))
    for axis, (name, label) in zip(axes.flat, shown):
        for recipe in recipes:
            mine = [row for row in rows if row["recipe"] == recipe]
            middle = np.array([row.get(name, np.nan) for row in mine], dtype=float)
            ends = [[row.get(f"{name}_{end}", np.nan) for row in mine] for end in ("low", "high")]
            spread = np.nan_to_num(np.abs(np.array(ends, dtype=float) - middle))
            heads = [row["heads"] for row in mine]
            axis.errorbar(heads, middle, spread, fmt="o-", capsize=3, label=recipe)
        axis.set_xscale("log", base=2)
        ticks = sorted({row["heads"] for row in rows})
        axis.set_xticks(ticks, [str(tick) for tick in ticks])
        axis.set_xlabel("heads of every block")
        axis.set_ylabel(label)
        axis.grid(alpha=0.3)
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(),
        frameon=False,
        loc="outside lower center",
        ncols=min(6, len(recipes)),
    )
    figure.suptitle("Number of heads at constant width", fontsize=10)
    return figure
