"""Figures of the study: pairs of heads, gaps of guides, inclusion probabilities."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from matplotlib.figure import Figure

from latentheads.contrib.plot import Picture, draw_head_posteriors
from latentheads.contrib.plot.canvas import show_whole_markers
from latentheads.contrib.plot.style import in_style

Results = Sequence[Mapping[str, Any]]


@in_style
def draw_interactions(networks: Results) -> Figure:
    """Draws covariances of pairs on validation against their interactions on test."""
    names = [name for name in networks[0]["pairs"][0] if name.startswith("covariance_")]
    figure = Picture(2.9 * len(names), 3.4)
    for axis, name in zip(figure.subplots(1, len(names), sharey=True, squeeze=False)[0], names):
        for network in networks:
            pairs = network["pairs"]
            x, y = ([pair[key] for pair in pairs] for key in (name, "interaction_test"))
            axis.scatter(x, y, s=9, alpha=0.7, label=f"{network['run']}")
        spearman = ", ".join(f"{network['spearman'][name]:.2f}" for network in networks)
        axis.set_title(f"temperature {name.removeprefix('covariance_')}\nSpearman {spearman}")
        axis.set_xlabel("covariance on validation")
        axis.axhline(0, color="0.7", lw=0.8, zorder=0)
        axis.axvline(0, color="0.7", lw=0.8, zorder=0)
        axis.ticklabel_format(axis="x", style="sci", scilimits=(-2, 2))
    figure.axes[0].set_ylabel("interaction on test\n(nats per token)")
    figure.axes[0].legend()
    figure.suptitle("Does the covariance of two heads predict their interaction?")
    return figure


@in_style
def draw_gaps(networks: Results) -> Figure:
    """Draws the exact gap of every guide of the gates of each sentence, a dot for each network."""
    rows = {(row["guide"], row["condition_on"]): [] for row in networks[0]["rows"]}  # type: ignore[var-annotated]
    for network in networks:
        for row in network["rows"]:
            rows[row["guide"], row["condition_on"]].append(max(row["gap"], 1e-7))
    order = sorted(rows, key=lambda key: -sum(rows[key]))
    figure = Picture(7.5, 0.4 + 0.32 * len(order))
    axis = figure.subplots()
    for index, key in enumerate(order):
        axis.plot(rows[key], [index] * len(rows[key]), "o", color="C0", ms=5, alpha=0.7)
    labels = [guide if not text else f"{guide}, {text}" for guide, text in order]
    axis.set_yticks(range(len(order)), labels)
    axis.invert_yaxis()
    axis.set_xlabel("gap, nats per target token")
    axis.set_xlim(left=0)
    show_whole_markers(figure)
    figure.suptitle(f"Gates of {networks[0]['blocks']} for each sentence: gaps of guides")
    return figure


def draw_inclusion(networks: Results, tau: float = 100.0) -> Figure:
    """Draws inclusion probabilities of the first network, and widths of their intervals.

    Args:
        networks: The results.
        tau: The temperature.
    """
    rows = [row for row in networks[0]["rows"] if row["tau"] == tau]
    inclusion = {row["blocks"][0]: torch.tensor(row["inclusion"]) for row in rows}
    width = {row["blocks"][0]: torch.tensor(row["high"]) - torch.tensor(row["low"]) for row in rows}
    title = f"{networks[0]['run']}, temperature {tau:g}"
    return draw_head_posteriors(inclusion, width, title)


FIGURES: Mapping[str, Callable[[Results], Figure]] = {
    "sets": draw_interactions,
    "ladder": draw_gaps,
    "inclusion": draw_inclusion,
    "encoder": partial(draw_inclusion, tau=1.0),  # of a few questions
}
"""The figure of a part, if it has one."""
