"""Plots of training: the bound over optimiser steps, and the KL of every block."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from latentheads.metrics.scores import truth_coverage
from latentheads.names import ALIGNED_POSITION, attention_type_of, block_of, latent_of
from latentheads.plot.canvas import (
    WIDTH,
    Picture,
    add_legend,
    group_by_attention_type,
    legend_label,
    scale_negated_by_log,
    write_notice,
    write_title,
)
from latentheads.plot.style import (
    ATTENTION_COLOURS,
    BLUE,
    GREEN,
    GREY,
    MARKERS,
    RED,
    REFERENCE_LINE,
    cycle_colours,
    in_style,
)

BOUND = "Bound (ELBO) on validation during training: higher is better"
NO_KL = "every KL is 0: the guide equals the prior"
NO_LATENTS = "no latent block"
ROW = 0.24
"""Height in inches of a bar of the KL."""


@in_style
def draw_bound(records: Sequence[Mapping[str, Any]], title: str = "") -> Figure:
    """Draws the ELBO on validation and related values over training.

    The objective is a mean over the training batches since the last report, so it is of other text.

    Args:
        records: Those of ``metrics.jsonl``, as many as there are.
        title: Second line of the title.
    """
    steps = [record["step"] for record in records]
    has_exact = any(record["valid"].get("exact") is not None for record in records)
    comparison = (
        ("exact", "exact log p") if has_exact else ("plug_in", "plug-in network (no bound)")
    )
    figure = Picture(WIDTH, 4.4)
    axis = figure.subplots()
    for name, label, line, colour in (
        ("elbo", "bound (ELBO)", "o-", BLUE),
        ("log_likelihood", "expected log-likelihood", "s--", RED),
        (*comparison, "^:", GREEN),
    ):
        values = _negate(record["valid"].get(name) for record in records)
        axis.plot(steps, values, line, color=colour, label=label)
    objective = _negate(record["objective"] for record in records)
    style = "-" if len(steps) > 1 else "d"  # a line needs two reports
    label = "objective on training batches"
    if np.isfinite(objective).any():  # a guide without parameters has no objective
        axis.plot(steps, objective, style, color=GREY, label=label, zorder=0)
    _finish(figure, axis, records, f"{BOUND}\n{title}")
    return figure


def _finish(figure: Figure, axis: Any, records: Sequence[Mapping[str, Any]], title: str) -> None:
    """Draws the true log p, labels the axes, and adds legend and title."""
    _draw_true_log_prob(axis, records[-1]["valid"] if records else {})
    scale_negated_by_log(axis)
    axis.grid(axis="y")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len({record["step"] for record in records}) == 1:
        axis.set_xticks([records[0]["step"]])
    axis.set_xlabel("optimiser steps")
    axis.set_ylabel("nats per target token")
    add_legend(figure)
    write_title(figure, title)


def _draw_true_log_prob(axis: Any, figures: Mapping[str, Any]) -> None:
    """Draws the line of the true log p, if it is known."""
    if figures.get("truth") is not None:
        axis.axhline(-figures["truth"], label=true_log_prob_label(figures), **REFERENCE_LINE)


def _negate(values: Iterable[float | None]) -> list[float]:
    """Negates values; NaN, which is not drawn, for missing ones."""
    return [math.nan if value is None else -value for value in values]


def true_log_prob_label(figures: Mapping[str, Any]) -> str:
    """The label of the true log p, which may be known for some sentences only."""
    return f"true log p {truth_coverage(figures)}".rstrip()


@in_style
def draw_curves(
    histories: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]], title: str = ""
) -> Figure:
    """Draws the ELBO of recipes over training: the mean over seeds, with their range as a band.

    Where log p is exact, as with alignments, it is drawn too, dashed.

    Args:
        histories: By name of a recipe, the records of ``metrics.jsonl`` of every seed.
        title: Second line of the title.
    """
    figure = Picture(WIDTH, 4.4)
    axis = figure.subplots()
    for colour, marker, (name, runs) in zip(
        cycle_colours(len(histories)), MARKERS * len(histories), histories.items()
    ):
        recipe = legend_label(name)
        for figure_name, label, line in (
            ("elbo", recipe, "-"),
            ("exact", f"{recipe}, exact", "--"),
        ):
            steps, values = _gather(runs, figure_name)
            if np.isfinite(values).any():
                axis.plot(steps, values.mean(0), marker + line, color=colour, label=label)
                axis.fill_between(steps, values.min(0), values.max(0), color=colour, alpha=0.18)
    records = [record for runs in histories.values() for run in runs for record in run]
    _finish(figure, axis, records, f"{BOUND}\n{title}")
    return figure


def _gather(
    runs: Sequence[Sequence[Mapping[str, Any]]], name: str
) -> tuple[list[int], Float[np.ndarray, "seed step"]]:
    """Returns the steps recorded for all seeds, and the negated values; NaN if missing."""
    histories = [{record["step"]: record["valid"].get(name) for record in run} for run in runs]
    steps = sorted(set.intersection(*map(set, histories))) if histories else []
    values = [[-np.array(history[step], dtype=float) for step in steps] for history in histories]
    return steps, np.array(values, dtype=float).reshape(len(runs), len(steps))


@in_style
def draw_kl(
    kl_by_site: Mapping[str, float | None],
    how: Mapping[str, str] | None = None,
    title: str = "",
) -> Figure:
    """Draws the KL of every latent block as a bar with its value.

    Args:
        kl_by_site: In nats per target token, by site; None if unknown.
        how: How it was computed, by site; ``fixed`` without noise.
        title: Second line of the title.
    """
    how = how or {}
    latent = {site: kl for site, kl in kl_by_site.items() if how.get(site) != "fixed"}
    figure = Picture(WIDTH, 1.2 + ROW * max(1, len(latent)))
    axis = figure.subplots()
    if latent:
        _draw_kl_bars(axis, latent, how)
    else:
        axis.set_axis_off()
        write_notice(axis, NO_LATENTS)
    write_title(figure, f"KL(guide ‖ prior) of each block\n{title}")
    return figure


def _draw_kl_bars(
    axis: Any, kl_by_site: Mapping[str, float | None], how: Mapping[str, str]
) -> None:
    """Draws a bar for each site, with its value and how the value was computed."""
    sites = [site for group in group_by_attention_type(kl_by_site).values() for site in group]
    values = np.array([kl_by_site[site] for site in sites], dtype=float)  # NaN of None
    colours = [ATTENTION_COLOURS[attention_type_of(site)] for site in sites]
    bars = axis.barh(range(len(sites)), np.nan_to_num(values), height=0.7, color=colours)
    axis.bar_label(
        bars, list(map(_describe_kl, values, map(how.get, sites))), padding=4, fontsize=8
    )
    axis.set_yticks(range(len(sites)), map(_label, sites))
    axis.invert_yaxis()
    axis.tick_params(axis="y", length=0)
    axis.set_xlabel("KL, nats per target token")
    axis.grid(axis="x")
    if np.nan_to_num(values).any():
        axis.margins(x=0.25)  # room for the labels
    else:
        axis.set(xlim=(0, 1), xticks=[0])
    if not values.any():  # NaN is true
        write_notice(axis, NO_KL)


def _describe_kl(value: float, computation: str | None) -> str:
    """A value in plain digits, and how it was computed if that is known."""
    number = "unknown" if math.isnan(value) else f"{value:.4f}" if value else "0"
    return f"{number} ({computation})" if computation else number


@in_style
def draw_kl_history(records: Sequence[Mapping[str, Any]], title: str = "") -> Figure:
    """Draws the KL of every block on validation over training, one colour per attention type.

    A KL of exactly 0 cannot be drawn on the logarithmic scale and is left out.

    Args:
        records: Those of ``metrics.jsonl``, as many as there are.
        title: Second line of the title.
    """
    steps = [record["step"] for record in records]
    kl_of_records = [record.get("kl_by_site") or {} for record in records]
    groups = group_by_attention_type(
        dict.fromkeys(site for kl_by_site in kl_of_records for site in kl_by_site)
    )
    figure = Picture(WIDTH, 4.2)
    axis = figure.subplots()
    has_kl = False
    for attention_type, sites in groups.items():
        for index, site in enumerate(sites):
            values = np.array([kl_by_site.get(site) for kl_by_site in kl_of_records], dtype=float)
            values[~(values > 0)] = math.nan
            has_kl |= bool(np.isfinite(values).any())
            style: dict[str, Any] = {
                "color": ATTENTION_COLOURS[attention_type],
                "marker": MARKERS[index % len(MARKERS)],
            }
            line = ("-", "--", ":", "-.")[index % 4]
            axis.plot(steps, values, line, label=_label(site), **style)
    if has_kl:
        axis.set_xlabel("optimiser steps")
        axis.set_ylabel("KL, nats per target token (validation)")
        axis.grid(axis="y")
        axis.set_yscale("log")
        add_legend(figure, columns=4)
    else:
        figure.set_figheight(1.2 + ROW)
        axis.set_axis_off()
        write_notice(axis, NO_KL if groups else NO_LATENTS)
    write_title(figure, f"KL of each block on validation during training\n{title}")
    return figure


def _label(site: str) -> str:
    """The block of a site of logits or alignments; the whole name of other sites."""
    return block_of(site) if latent_of(site) in ("logits", ALIGNED_POSITION) else site
