"""Plots of training: the bound over optimiser steps, and the KL of every block."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from latentheads.contrib.plot.canvas import (
    WIDTH,
    Picture,
    add_legend,
    format_nats,
    group_by_attention_type,
    label_steps,
    legend_label,
    marker_stride,
    scale_negated_by_log,
    write_note_above,
    write_note_below,
    write_notice,
    write_title,
)
from latentheads.contrib.plot.style import (
    ATTENTION_COLOURS,
    BLUE,
    GREEN,
    GREY,
    MARKERS,
    RED,
    REFERENCE_LINE,
    distinct_colours,
    in_style,
)
from latentheads.metrics.scores import truth_coverage
from latentheads.names import ALIGNED_POSITION, attention_type_of, block_of, latent_of

BOUND = "Bound (ELBO) on validation during training: higher is better"
NO_KL = "every KL is 0: the guide equals the prior"
NO_LATENTS = "no latent block"
FEWEST_EVALUATIONS, SMALLEST_SHARE, MARGIN = 5, 1 / 5, 0.05
"""When the first evaluations may be cut off, the share of the axis below which they are, and the
margin at each end of the axis."""

ROW = 0.24
"""Height in inches of a bar of the KL."""


@in_style
def draw_bound(records: Sequence[Mapping[str, Any]], title: str = "") -> Figure:
    """Draws the ELBO on validation and related values over training.

    The objective is a mean over the training batches since the last report, so it is of other text.

    Args:
        records: The records of ``metrics.jsonl``; training may go on.
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
        axis.plot(steps, values, line, color=colour, label=label, markevery=marker_stride(steps))
    objective = _negate(record["objective"] for record in records)
    style = "-" if len(steps) > 1 else "d"  # a line needs two reports
    label = "objective on training batches"
    if np.isfinite(objective).any():  # a guide without parameters has no objective
        axis.plot(steps, objective, style, color=GREY, label=label, zorder=0)
    _finish(figure, axis, records, f"{BOUND}\n{title}")
    return figure


def _finish(figure: Figure, axis: Any, records: Sequence[Mapping[str, Any]], title: str) -> None:
    """Draws the true log p, labels the axes, and adds legend and title."""
    _set_limits(axis)
    if len({record["valid"].get("truth") for record in records}) == 1:  # of one text
        _draw_true_log_prob(axis, records[-1]["valid"])
    scale_negated_by_log(axis)
    axis.grid(axis="y")
    label_steps(axis, [record["step"] for record in records])
    axis.set_ylabel("nats per target token (log scale)")
    add_legend(figure)
    write_title(figure, title)


def _set_limits(axis: Any) -> None:
    """Sets the limits of the y axis to what is shown, if need be without the first evaluations.

    The first tenth of them is cut off, and a note states it, if the others would fill less than a
    fifth of the axis.
    """
    steps, values = _positive_points(axis).T
    if not len(values):
        return
    evaluations = np.unique(steps)
    number = math.ceil(len(evaluations) / 10) if len(evaluations) >= FEWEST_EVALUATIONS else 0
    shown = values[steps >= evaluations[number]]
    if SMALLEST_SHARE * _decades(values) <= _decades(shown):
        shown = values
    if values.max() > shown.max():
        text = f"first evaluations: down to {_write(values.max())}"
        write_note_below(axis, f"\N{DOWNWARDS ARROW} {text}")
    _set_ends(axis, shown)


def _set_ends(axis: Any, values: Float[np.ndarray, " value"]) -> None:
    """Sets the limits of a logarithmic y axis to the range of values, with margins."""
    margin = 10 ** max(MARGIN * _decades(values), 1e-3)
    axis.set_ylim(values.min() / margin, values.max() * margin)


def _positive_points(axis: Any) -> Float[np.ndarray, "point 2"]:
    """Steps and values of the lines and bands of a plot that a logarithmic axis can show."""
    bands = [path.vertices for band in axis.collections for path in band.get_paths()]
    points = np.concatenate([np.zeros((0, 2)), *(line.get_xydata() for line in axis.lines), *bands])
    return np.asarray(points[np.isfinite(points).all(1) & (points[:, 1] > 0)])


def _decades(values: Float[np.ndarray, " value"]) -> float:
    """The length of a logarithmic axis that some values need."""
    return float(np.log10(values.max() / values.min()))


def _draw_true_log_prob(axis: Any, figures: Mapping[str, Any]) -> None:
    """Draws the line of the true log p, if it is known; if it is far away, a note has its value."""
    if figures.get("truth") is None:
        return
    value, label = -figures["truth"], true_log_prob_label(figures)
    shown = np.array(axis.get_ylim())
    extended = np.append(shown, value)
    if value > 0 and _decades(shown) < _decades(extended) / 2 and len(_positive_points(axis)):
        if value < shown.min():
            write_note_above(axis, f"\N{UPWARDS ARROW} {label}: {_write(value)}")
        else:
            write_note_below(axis, f"\N{DOWNWARDS ARROW} {label}: {_write(value)}")
        return
    if value > 0 and _decades(extended) > _decades(shown):
        _set_ends(axis, extended)
    axis.axhline(value, label=label, **REFERENCE_LINE)


def _write(value: float) -> str:
    """A negated value with its original sign."""
    return f"{-value:,.2f}".replace("-", "\N{MINUS SIGN}")


def _negate(values: Iterable[float | None]) -> list[float]:
    """Negates values; a missing one becomes NaN, which is not shown."""
    return [math.nan if value is None else -value for value in values]


def true_log_prob_label(figures: Mapping[str, Any]) -> str:
    """The label of the true log p, which may be known for some sentences only."""
    return f"true log p {truth_coverage(figures)}".rstrip()


@in_style
def draw_curves(
    histories: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]], title: str = ""
) -> Figure:
    """Draws the ELBO of recipes over training: the mean over seeds, with their range as a band.

    Where log p is exact, as with alignments, it is shown too, dashed with white markers, unless it
    equals the bound.

    Args:
        histories: By name of a recipe, the records of ``metrics.jsonl`` of every seed.
        title: Second line of the title.
    """
    figure = Picture(WIDTH, 4.4)
    axis = figure.subplots()
    for colour, marker, (name, runs) in zip(
        distinct_colours(len(histories)), MARKERS * len(histories), histories.items()
    ):
        recipe = legend_label(name)
        for figure_name, label, line, face in (
            ("elbo", recipe, "-", colour),
            ("exact", f"{recipe}, exact", "--", "white"),
        ):
            steps, values = _gather(runs, figure_name)
            is_bound = figure_name != "elbo" and np.array_equal(values, _gather(runs, "elbo")[1])
            if np.isfinite(values).any() and not is_bound:
                style: dict[str, Any] = {"color": colour, "label": label, "markerfacecolor": face}
                style["markevery"] = marker_stride(steps)
                axis.plot(steps, values.mean(0), marker + line, **style)
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
    axis.set_ylim(len(sites) - 0.4, -0.6)
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
    """A value, and how it was computed if that is known."""
    number = "unknown" if math.isnan(value) else format_nats(value) if value else "0"
    return f"{number} ({computation})" if computation else number


@in_style
def draw_kl_history(records: Sequence[Mapping[str, Any]], title: str = "") -> Figure:
    """Draws the KL of every block on validation over training, one colour per attention type.

    A KL of exactly 0 is left out, since the scale is logarithmic.

    Args:
        records: The records of ``metrics.jsonl``; training may go on.
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
            axis.plot(
                steps, values, line, label=_label(site), markevery=marker_stride(steps), **style
            )
    if has_kl:
        label_steps(axis, steps)
        axis.set_ylabel("KL, nats per target token\n(validation)")
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
