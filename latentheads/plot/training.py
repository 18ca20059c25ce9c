"""What a run reports of itself: the bound over training, and the KL of every block."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from latentheads.names import CHOICE
from latentheads.plot.canvas import COLOURS, Picture, by_chain

__all__ = ["draw_bound", "draw_kl", "draw_kl_history", "truth_label"]


def draw_bound(records: Sequence[Mapping[str, Any]]) -> Figure:
    """Draws the true bound on validation, and what stands beside it, over training.

    Args:
        records: Those of ``metrics.jsonl``, as many as are left.
    """
    steps = [record["step"] for record in records]
    exact = any(record["valid"].get("exact") is not None for record in records)
    beside = ("exact", "exact log p") if exact else ("plug_in", "plug-in network (no bound)")
    figure = Picture(7, 4.8)
    axis = figure.subplots()
    for name, label, style in (
        ("elbo", "bound (ELBO)", "-"),
        ("log_likelihood", "expected log-likelihood", "--"),
        (*beside, ":"),
    ):
        values = _negate(record["valid"].get(name) for record in records)
        axis.plot(steps, values, style, marker=".", label=label)
    objective = _negate(record["objective"] for record in records)
    axis.plot(steps, objective, color="0.7", label="training objective (no bound)", zorder=0)
    last = records[-1]["valid"] if records else {}
    if last.get("truth") is not None:
        axis.axhline(-last["truth"], color="black", linewidth=0.8, label=truth_label(last))
    axis.set_yscale("log")
    _label_scale(axis)
    axis.set_title("The bound while training: lower is better", fontsize=10)
    axis.set_xlabel("updates")
    axis.set_ylabel("minus nats per target token (validation)")
    figure.legend(frameon=False, loc="outside lower center", ncols=2, fontsize=9)
    return figure


def _label_scale(axis: Any) -> None:
    """Labels a logarithmic axis with plain numbers, few over decades and some within one."""
    low, high = axis.get_ylim()
    wide = high > 10 * low
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)) if wide else MaxNLocator(6))
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_locator(NullLocator())


def _negate(values: Iterable[float | None]) -> list[float]:
    """The values negated; NaN, which is not drawn, for one that is missing."""
    return [math.nan if value is None else -value for value in values]


def truth_label(figures: Mapping[str, Any]) -> str:
    """What the line of the truth is called; it may be that of some sentences alone."""
    known, every = figures.get("truth_sentences"), figures.get("sentences")
    some = "" if known in (None, every) else f" of {known:,} of {every:,} sentences"
    return f"true log p(y | x){some}"


def draw_kl(kl_by_site: Mapping[str, float | None], how: Mapping[str, str] | None = None) -> Figure:
    """Draws the KL of every block that has noise.

    Args:
        kl_by_site: In nats a target token, by site; None where it is not known.
        how: How it was computed, by site; ``fixed`` where there is no noise.
    """
    fixed = {site for site, said in (how or {}).items() if said == "fixed"}
    kl_by_site = {site: kl for site, kl in kl_by_site.items() if site not in fixed}
    chains = by_chain(kl_by_site)
    figure = Picture(max(7, 0.35 * len(kl_by_site)), 4)
    axis = figure.subplots()
    labels: list[str] = []
    for chain, sites in chains.items():
        places = range(len(labels), len(labels) + len(sites))
        known = np.array([kl_by_site[site] for site in sites], dtype=float)  # NaN of None
        axis.bar(places, known, color=COLOURS[chain], label=chain)
        labels += [site.removesuffix(".logits").removesuffix(f".{CHOICE}") for site in sites]
    axis.set_xticks(range(len(labels)), labels, rotation=45, ha="right")
    axis.set_xlim(-0.6, max(len(labels), 6) - 0.4)  # a few bars are no wider than many
    axis.set_ylabel("KL, nats a target token")
    axis.set_title("What each block's posterior pays to differ from its prior", fontsize=10)
    if not any(kl_by_site.values()):
        axis.set_ylim(0, 1)
        text = "every KL is 0: the posterior is the prior" if labels else "no latent block"
        axis.text(0.5, 0.5, text, ha="center", transform=axis.transAxes)
    if labels:
        figure.legend(frameon=False, loc="outside lower center", ncols=3)
    return figure


def draw_kl_history(records: Sequence[Mapping[str, Any]]) -> Figure:
    """Draws the KL of every block on validation over training, a colour a chain.

    A KL of exactly 0 has no place on the scale and is left out.

    Args:
        records: Those of ``metrics.jsonl``, as many as are left.
    """
    steps = [record["step"] for record in records]
    found = [record.get("kl_by_site") or {} for record in records]
    chains = by_chain(dict.fromkeys(site for kl_by_site in found for site in kl_by_site))
    figure = Picture(7, 4.2)
    axis = figure.subplots()
    drawn = False
    for chain, sites in chains.items():
        for place, site in enumerate(sites):
            values = np.array([kl_by_site.get(site) for kl_by_site in found], dtype=float)
            values[~(values > 0)] = math.nan
            drawn |= bool(np.isfinite(values).any())
            style = ("-", "--", ":", "-.")[place % 4]
            label = site.rpartition(".")[0]
            axis.plot(steps, values, style, marker=".", color=COLOURS[chain], label=label)
    axis.set_title("What each block pays to differ from its prior, while training", fontsize=10)
    axis.set_xlabel("updates")
    axis.set_ylabel("KL, nats a target token (validation)")
    if drawn:
        axis.set_yscale("log")
        figure.legend(frameon=False, loc="outside right upper", fontsize=8)
    else:
        text = "every KL is 0: the posterior is the prior" if chains else "no latent block"
        axis.text(0.5, 0.5, text, ha="center", transform=axis.transAxes)
    return figure
