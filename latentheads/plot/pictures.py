"""The plots of a run folder and of a comparison."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from torch import Tensor

from latentheads.files import written_whole
from latentheads.names import CHAINS, chain_of, layer_of
from latentheads.reading.divergence import Divergence

__all__ = [
    "draw_bound",
    "draw_divergence",
    "draw_elbos",
    "draw_kl",
    "draw_pruning",
    "draw_selection",
    "draw_selection_history",
    "draw_sweep",
    "largest",
    "save_figure",
]

COLOURS = {"encoder-self": "#3b6fb6", "decoder-self": "#d98032", "decoder-cross": "#4a9a5b"}


def by_chain(sites: Any) -> dict[str, list[str]]:
    """Sorts sites into chains, bottom to top."""
    chains: dict[str, list[str]] = defaultdict(list)
    for site in sites:
        chains[chain_of(site)].append(site)
    order = [chain for chain in CHAINS if chain in chains]
    return {chain: sorted(chains[chain], key=layer_of) for chain in order}


def largest(values: Iterable[Tensor]) -> float:
    """The end of a colour scale from 0 for several tensors; silent heads are NaN in them."""
    return max([1e-9, *(float(each.nan_to_num().max()) for each in values)])


def save_figure(figure: Any, path: Path) -> None:
    """Writes a figure whole or not at all, and forgets it."""
    try:
        with written_whole(path) as partial:
            figure.savefig(partial, dpi=120, format=path.suffix[1:])
    finally:
        plt.close(figure)


def draw_bound(records: list[dict[str, Any]], path: Path) -> None:
    """Draws the true bound on validation, and what stands beside it, over training.

    Args:
        records: Those of ``metrics.jsonl``, as many as are left.
        path: Where to write.
    """
    steps = [record["step"] for record in records]
    figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
    for name, label, style in (
        ("elbo", "bound (ELBO)", "-"),
        ("log_likelihood", "expected log-likelihood", "--"),
        ("plug_in", "plug-in network (no bound)", ":"),
    ):
        values = _minus(record["valid"].get(name) for record in records)
        axis.plot(steps, values, style, marker=".", label=label)
    objective = _minus(record["objective"] for record in records)
    axis.plot(steps, objective, color="0.7", label="training objective (no bound)", zorder=0)
    last = records[-1]["valid"] if records else {}
    if last.get("truth") is not None:
        axis.axhline(-last["truth"], color="black", linewidth=0.8, label=_truth_label(last))
    axis.set_yscale("log")
    axis.set_xlabel("updates")
    axis.set_ylabel("minus nats per target token (validation)")
    axis.legend(frameon=False)
    save_figure(figure, path)


def _minus(values: Iterable[float | None]) -> list[float]:
    """The values negated; NaN, which is not drawn, for one that is missing."""
    return [math.nan if value is None else -value for value in values]


def _truth_label(figures: Mapping[str, Any]) -> str:
    """What the line of the truth is called; it may be that of some sentences alone."""
    known, every = figures.get("truth_sentences"), figures.get("sentences")
    some = "" if known in (None, every) else f" of {known:,} of {every:,} sentences"
    return f"true log p(y | x){some}"


def draw_kl(kl_by_site: dict[str, float | None], path: Path) -> None:
    """Draws the KL of every block."""
    chains = by_chain(kl_by_site)
    figure, axis = plt.subplots(figsize=(7, 3.5), layout="constrained")
    labels: list[str] = []
    for chain, sites in chains.items():
        places = range(len(labels), len(labels) + len(sites))
        known = np.array([kl_by_site[site] for site in sites], dtype=float)  # NaN of None
        axis.bar(places, known, color=COLOURS[chain], label=chain)
        labels += [site.removesuffix(".logits") for site in sites]
    axis.set_xticks(range(len(labels)), labels, rotation=45, ha="right")
    axis.set_ylabel("KL, nats per target token (test)")
    if not any(kl_by_site.values()):
        axis.set_ylim(0, 1)
        text = "every KL is 0: the posterior is the prior" if labels else "no latent block"
        axis.text(0.5, 0.5, text, ha="center", transform=axis.transAxes)
    if labels:
        figure.legend(frameon=False, loc="outside upper center", ncols=3)
    save_figure(figure, path)


def draw_divergence(heads: Divergence, path: Path) -> None:
    """Draws the divergence between the heads of every block, a row of panels a chain."""
    chains = by_chain(site for site, matrix in heads.summed.items() if len(matrix) > 1)
    rows, columns = max(1, len(chains)), max([1, *map(len, chains.values())])
    figure, axes = plt.subplots(
        rows,
        columns,
        figsize=(2.2 * columns + 1.4, 2.2 * rows),
        squeeze=False,
        layout="constrained",
    )
    top = largest(heads.summed.values())
    for axis in axes.flat:
        axis.set_axis_off()
    image = None
    for row, sites in zip(axes, chains.values()):
        for axis, site in zip(row, sites):
            axis.set_axis_on()
            image = axis.imshow(heads.summed[site].numpy(), vmin=0, vmax=top, cmap="viridis")
            axis.set_title(site.removesuffix(".logits"), fontsize=9)
            ticks = range(len(heads.summed[site]))
            axis.set_xticks(ticks)
            axis.set_yticks(ticks)
            axis.set_xlabel("head", fontsize=8)
            axis.set_ylabel("head", fontsize=8)
    if image is not None:
        label = "JSD of the plug-in heads, nats\nsummed over queries, mean over sentences"
        figure.colorbar(image, ax=axes, label=label, shrink=0.8)
    else:
        axes[0, 0].text(0.5, 0.5, "no latent block of two heads", ha="center")
    save_figure(figure, path)


def draw_elbos(rows: list[dict[str, Any]], path: Path) -> None:
    """Draws the bound of every recipe with its terms and intervals, best at the top of the scale.

    Args:
        rows: One dictionary a recipe with ``recipe`` and ``NAME``, ``NAME_low``, ``NAME_high`` for
            elbo, log_likelihood, iwae and plug_in; any of them may be missing, and ``truth``, with
            ``truth_sentences`` of ``sentences`` whose truth it is.
        path: Where to write.
    """
    figure, axis = plt.subplots(figsize=(1.5 + 1.3 * len(rows), 4.5), layout="constrained")
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
        axis.axhline(rows[0]["truth"], color="black", linewidth=0.8, label=_truth_label(rows[0]))
    axis.set_xticks(places, [row["recipe"] for row in rows], rotation=30, ha="right")
    axis.set_ylabel("nats per target token (test)")
    axis.legend(frameon=False, fontsize=8)
    save_figure(figure, path)


def draw_pruning(points: list[dict[str, Any]], path: Path) -> None:
    """Draws what is left of a run against the heads that are left: quality, size and speed.

    Args:
        points: Those of a curve, the whole network first.
        path: Where to write.
    """
    heads = [point["heads"] for point in points]
    translated = points[0]["test"]["bleu"] is not None
    figure, axes = plt.subplots(
        1, 2 + translated, figsize=(4 * (2 + translated), 3.6), layout="constrained", squeeze=False
    )
    *quality, cost = axes.flat
    if translated:
        quality[0].plot(heads, [p["test"]["bleu"] for p in points], "o-", color="#3b6fb6")
        quality[0].set_ylabel("BLEU (test)")
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
    save_figure(figure, path)


def draw_selection(found: dict[str, Any], path: Path) -> None:
    """Draws which heads every task speaks with, and how many two tasks share.

    Args:
        found: By chain: ``tasks``, their names; ``probabilities``, of every block; ``sharing``;
            ``by_chance``.
        path: Where to write.
    """
    columns = 1 + max(len(side["tasks"]) for side in found.values())
    figure, axes = plt.subplots(
        len(found),
        columns,
        figsize=(2.3 * columns + 0.6, 2.5 * len(found) + 0.3),
        squeeze=False,
        layout="constrained",
    )
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
        figure.colorbar(image, ax=axes, label="posterior probability (dot: chosen)", shrink=0.8)
    save_figure(figure, path)


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
    axis.set_title(f"heads in common ({side['by_chance']:.2f} by chance)", fontsize=9)


def draw_selection_history(
    records: list[dict[str, Any]], found: dict[str, Any], path: Path
) -> None:
    """Draws the posterior probability of every candidate over training, a panel a block.

    Args:
        records: Those of ``metrics.jsonl``; ``selection`` has the probabilities of every block.
            Nothing is drawn where none is left that has them.
        found: By chain: ``tasks``, their names. A colour that stands for several has them all.
        path: Where to write.
    """
    records = [record for record in records if "selection" in record]
    if not records:
        return
    blocks = list(records[-1]["selection"])
    columns = min(4, len(blocks))
    rows = -(-len(blocks) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(3 * columns, 2.1 * rows + 0.5), squeeze=False, layout="constrained"
    )
    steps = [record["step"] for record in records]
    for axis in axes.flat[len(blocks) :]:
        axis.set_axis_off()
    for axis, block in zip(axes.flat, blocks):
        values = np.array([record["selection"][block] for record in records])
        for task in range(values.shape[1]):
            lines = axis.plot(steps, values[:, task], color=f"C{task}", linewidth=0.9, marker=".")
            lines[0].set_label(_named(found, task))
        axis.set_ylim(-0.02, 1.02)
        axis.set_title(block, fontsize=9)
        axis.set_xlabel("updates", fontsize=8)
        axis.set_ylabel("q(speaks)", fontsize=8)
    most = max(axes.flat, key=lambda axis: len(axis.get_lines()))
    handles, labels = most.get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="outside upper center", ncols=len(labels))
    save_figure(figure, path)


def _named(found: dict[str, Any], task: int) -> str:
    """What the chains call a task, each name once."""
    names = [side["tasks"][task] or "all" for side in found.values() if task < len(side["tasks"])]
    return " / ".join(dict.fromkeys(names))


def draw_sweep(rows: list[dict[str, Any]], path: Path) -> None:
    """Draws quality against the number of heads, a line a recipe, as the paper's figure 3.

    Args:
        rows: One dictionary a recipe and number of heads, with intervals, as a sweep writes them.
        path: Where to write.
    """
    shown = [
        (name, label)
        for name, label in (
            ("bleu", "BLEU (test)"),
            ("perplexity_plug_in", "perplexity by word, plug-in (test)"),
            ("plug_in", "plug-in (no bound), nats per target token (test)"),
            ("elbo", "bound (ELBO), nats per target token (test)"),
            ("parameters", "parameters"),
        )
        if any(name in row for row in rows)
    ]
    figure, axes = plt.subplots(
        1, len(shown), figsize=(3.8 * len(shown), 3.8), layout="constrained", squeeze=False
    )
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
    axes[0, 0].legend(frameon=False)
    save_figure(figure, path)
