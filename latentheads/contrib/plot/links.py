"""Plots the alignment error rate of links against gold links, for several runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from latentheads.checks import check_not_empty
from latentheads.contrib.heads.alignments import ATTENTION, DISTRIBUTIONS, SOFT, LinkScore
from latentheads.contrib.plot.canvas import WIDTH, Picture, shorten, write_title
from latentheads.contrib.plot.style import GREEN, ORANGE, RED, in_style

BAR = 0.22
"""Height of a bar in inches."""

MAX_RUN = 32
"""Characters of the name of a run beside a bar."""

KINDS = {
    **dict(zip(DISTRIBUTIONS, ("#9ecae1", "#4292c6", "#084594"))),
    SOFT: GREEN,
    **dict(zip(ATTENTION, (ORANGE, RED))),
}
NOTES = {
    "prior": "before the word is known",
    "posterior": "exact, given the word",
    SOFT: "deterministic",
    ATTENTION[0]: "best head, at the step that predicts the word",
    ATTENTION[1]: "best head, at the next step",
}


@in_style
def draw_links(links: Mapping[str, Sequence[LinkScore]], title: str = "") -> Figure:
    """Draws the alignment error rate of every distribution and head, one group of bars per run.

    Args:
        links: The scores of every run, by name of the run.
        title: Second line of the title.
    """
    rows = [(run, score) for run, scores in links.items() for score in scores]
    check_not_empty("links", rows)
    figure = Picture(WIDTH, 1.8 + BAR * (len(rows) + len(links)))
    axis = figure.subplots()
    positions = _bar_positions([run for run, _ in rows])
    rates = np.array([score.counts.aer for _, score in rows])
    ends = np.array([score.interval() for _, score in rows]).T
    errors = np.stack([rates - ends[0], ends[1] - rates]).clip(0)  # NaN is not drawn
    colours = [KINDS[score.distribution] for _, score in rows]
    style: dict[str, Any] = {"error_kw": {"elinewidth": 1.0, "capsize": 2}}
    bars = axis.barh(positions, rates, xerr=errors.tolist(), color=colours, height=0.85, **style)
    axis.bar_label(bars, labels=[f"{rate:.3f}" for rate in rates], fontsize=8, padding=2)
    axis.set_yticks(positions, [f"{shorten(run, MAX_RUN)}: {score.head}" for run, score in rows])
    axis.set_ylim(positions[-1] + 0.6, positions[0] - 0.6)
    axis.set_xlim(0, 1.08)
    axis.set_xlabel("alignment error rate\n(0: every link is correct)")
    present = {score.distribution for _, score in rows}
    figure.legend(
        handles=[_legend_entry(kind) for kind in KINDS if kind in present],
        loc="outside lower center",
        ncols=2,
    )
    intervals = "; 95 % intervals over sentences" if np.isfinite(ends).any() else ""
    write_title(figure, f"Word alignment against gold links{intervals}\n{title}")
    return figure


def _bar_positions(runs: Sequence[str]) -> list[int]:
    """The positions of the bars, with a gap between runs."""
    starts = [run != previous for previous, run in pairwise(runs)]
    return list(accumulate((1 + new for new in starts), initial=1))


def _legend_entry(distribution: str) -> Patch:
    """The legend entry of a distribution."""
    note = NOTES.get(distribution)
    label = distribution if note is None else f"{distribution}: {note}"
    return Patch(color=KINDS[distribution], label=label)
