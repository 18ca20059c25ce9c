"""Pictures of a training: the bound over its updates, and the KL of every block."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from latentheads.metrics.scores import truth_coverage
from latentheads.names import ALIGNED_POSITION, block_of, latent_of
from latentheads.plot.canvas import (
    WIDTH,
    Picture,
    add_legend,
    by_chain,
    label_of,
    say_nothing,
    scale_negated_by_log,
    write_title,
)
from latentheads.plot.style import (
    BLUE,
    CHAIN_COLOURS,
    GREEN,
    GREY,
    MARKERS,
    RED,
    TRUTH,
    colours_of,
    in_style,
)

__all__ = ["draw_bound", "draw_curves", "draw_kl", "draw_kl_history", "truth_label"]

BOUND = "The bound (ELBO) on validation, while training: higher is better"
NO_KL = "every KL is 0: the posterior is the prior"


@in_style
def draw_bound(records: Sequence[Mapping[str, Any]], title: str = "") -> Figure:
    """Draws the true bound on validation, and what stands beside it, over training.

    The objective is a mean over the training batches since the report before, and other text.

    Args:
        records: Those of ``metrics.jsonl``, as many as are left.
        title: What was trained.
    """
    steps = [record["step"] for record in records]
    exact = any(record["valid"].get("exact") is not None for record in records)
    beside = ("exact", "exact log p") if exact else ("plug_in", "plug-in network (no bound)")
    figure = Picture(WIDTH, 4.4)
    axis = figure.subplots()
    for name, label, line, colour in (
        ("elbo", "bound (ELBO)", "o-", BLUE),
        ("log_likelihood", "expected log-likelihood", "s--", RED),
        (*beside, "^:", GREEN),
    ):
        values = _negate(record["valid"].get(name) for record in records)
        axis.plot(steps, values, line, color=colour, label=label)
    objective = _negate(record["objective"] for record in records)
    mark = "-" if len(steps) > 1 else "d"  # of one report no line can be seen
    label = "objective on training batches"
    if np.isfinite(objective).any():  # a guide that learns nothing has none
        axis.plot(steps, objective, mark, color=GREY, label=label, zorder=0)
    _finish(figure, axis, records, f"{BOUND}\n{title}")
    return figure


def _finish(figure: Figure, axis: Any, records: Sequence[Mapping[str, Any]], title: str) -> None:
    """Draws the truth, labels the axes, and adds the legend."""
    _draw_truth(axis, records[-1]["valid"] if records else {})
    scale_negated_by_log(axis)
    axis.grid(axis="y")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len({record["step"] for record in records}) == 1:
        axis.set_xticks([records[0]["step"]])
    axis.set_xlabel("updates")
    axis.set_ylabel("nats per target token")
    add_legend(figure)
    write_title(figure, title)


def _draw_truth(axis: Any, figures: Mapping[str, Any]) -> None:
    """Draws the line of the truth, where it is known, with its name."""
    if figures.get("truth") is not None:
        axis.axhline(-figures["truth"], label=truth_label(figures), **TRUTH)


def _negate(values: Iterable[float | None]) -> list[float]:
    """The values negated; NaN, which is not drawn, for one that is missing."""
    return [math.nan if value is None else -value for value in values]


def truth_label(figures: Mapping[str, Any]) -> str:
    """The name of the line of the truth, which may be known of some sentences alone."""
    return f"true log p {truth_coverage(figures)}".rstrip()


@in_style
def draw_curves(
    histories: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]], title: str = ""
) -> Figure:
    """Draws the bound of recipes over training: a line the mean over seeds, a band their range.

    Where log p is exact, as with alignments, that is drawn too, dashed.

    Args:
        histories: By the name of a recipe, for every seed the records of ``metrics.jsonl``.
        title: What was trained.
    """
    figure = Picture(WIDTH, 4.4)
    axis = figure.subplots()
    for colour, mark, (name, runs) in zip(
        colours_of(len(histories)), MARKERS * len(histories), histories.items()
    ):
        said = label_of(name)
        for figure_name, label, line in (("elbo", said, "-"), ("exact", f"{said}, exact", "--")):
            steps, values = _gather(runs, figure_name)
            if np.isfinite(values).any():
                axis.plot(steps, values.mean(0), mark + line, color=colour, label=label)
                axis.fill_between(steps, values.min(0), values.max(0), color=colour, alpha=0.18)
    records = [record for runs in histories.values() for run in runs for record in run]
    _finish(figure, axis, records, f"{BOUND}\n{title}")
    return figure


def _gather(
    runs: Sequence[Sequence[Mapping[str, Any]]], name: str
) -> tuple[list[int], Float[np.ndarray, "seed step"]]:
    """A figure, negated, of every seed at the steps that all of them have noted; NaN if missing."""
    found = [{record["step"]: record["valid"].get(name) for record in run} for run in runs]
    steps = sorted(set.intersection(*map(set, found))) if found else []
    values = [[-np.array(each[step], dtype=float) for step in steps] for each in found]
    return steps, np.array(values, dtype=float).reshape(len(runs), len(steps))


@in_style
def draw_kl(
    kl_by_site: Mapping[str, float | None],
    how: Mapping[str, str] | None = None,
    title: str = "",
) -> Figure:
    """Draws the KL of every block that has noise.

    Args:
        kl_by_site: In nats a target token, by site; None where it is not known.
        how: How it was computed, by site; ``fixed`` where there is no noise.
        title: What was trained.
    """
    fixed = {site for site, said in (how or {}).items() if said == "fixed"}
    kl_by_site = {site: kl for site, kl in kl_by_site.items() if site not in fixed}
    chains = by_chain(kl_by_site)
    figure = Picture(max(WIDTH, 0.3 * len(kl_by_site)), 3.6)
    axis = figure.subplots()
    labels: list[str] = []
    for chain, sites in chains.items():
        places = range(len(labels), len(labels) + len(sites))
        known = np.array([kl_by_site[site] for site in sites], dtype=float)  # NaN of None
        axis.bar(places, known, color=CHAIN_COLOURS[chain], label=chain)
        labels += map(_label, sites)
    axis.set_xticks(range(len(labels)), labels, rotation=45, ha="right")
    axis.set_xlim(-0.6, max(len(labels), 6) - 0.4)  # a few bars are no wider than many
    axis.set_ylabel("KL, nats a target token")
    axis.grid(axis="y")
    if not any(kl_by_site.values()):
        axis.set(ylim=(0, 1), yticks=[0])
        say_nothing(axis, NO_KL if labels else "no latent block")
    add_legend(figure, columns=4)
    write_title(figure, f"What each block's posterior pays to differ from its prior\n{title}")
    return figure


@in_style
def draw_kl_history(records: Sequence[Mapping[str, Any]], title: str = "") -> Figure:
    """Draws the KL of every block on validation over training, a colour a chain.

    A KL of exactly 0 has no place on the scale and is left out.

    Args:
        records: Those of ``metrics.jsonl``, as many as are left.
        title: What was trained.
    """
    steps = [record["step"] for record in records]
    found = [record.get("kl_by_site") or {} for record in records]
    chains = by_chain(dict.fromkeys(site for kl_by_site in found for site in kl_by_site))
    figure = Picture(WIDTH, 4.2)
    axis = figure.subplots()
    drawn = False
    for chain, sites in chains.items():
        for place, site in enumerate(sites):
            values = np.array([kl_by_site.get(site) for kl_by_site in found], dtype=float)
            values[~(values > 0)] = math.nan
            drawn |= bool(np.isfinite(values).any())
            shown: dict[str, Any] = {
                "color": CHAIN_COLOURS[chain],
                "marker": MARKERS[place % len(MARKERS)],
            }
            line = ("-", "--", ":", "-.")[place % 4]
            axis.plot(steps, values, line, label=_label(site), **shown)
    axis.set_xlabel("updates")
    axis.set_ylabel("KL, nats a target token (validation)")
    axis.grid(axis="y")
    if drawn:
        axis.set_yscale("log")
        add_legend(figure, columns=4)
    else:
        say_nothing(axis, NO_KL if chains else "no latent block")
    write_title(figure, f"What each block pays to differ from its prior, while training\n{title}")
    return figure


def _label(site: str) -> str:
    """The block of logits or of choices; of what else a block draws the whole name."""
    return block_of(site) if latent_of(site) in ("logits", ALIGNED_POSITION) else site
