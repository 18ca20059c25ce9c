"""How well links meet gold links, run beside run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from latentheads.analysis.alignments import ATTENTION, DISTRIBUTIONS, SOFT, LinkScore
from latentheads.plot.canvas import WIDTH, Picture, check_not_empty, escape, write_title
from latentheads.plot.style import GREEN, ORANGE, RED, in_style

__all__ = ["draw_links"]

BAR = 0.22
"""Inches of a bar."""

KINDS = {
    **dict(zip(DISTRIBUTIONS, ("#9ecae1", "#4292c6", "#084594"))),
    SOFT: GREEN,
    **dict(zip(ATTENTION, (ORANGE, RED))),
}
NOTES = {
    "prior": "before the word is known",
    "posterior": "exact, given the word",
    SOFT: "means, nothing drawn",
    ATTENTION[0]: "best head, predicting the word",
    ATTENTION[1]: "best head, having read the word",
}


@in_style
def draw_links(links: Mapping[str, Sequence[LinkScore]], title: str = "") -> Figure:
    """Draws the alignment error rate of every law and head, a group of bars a run.

    Args:
        links: The scores of every run, by its name.
        title: What was read.
    """
    check_not_empty("links", links)
    rows = [(run, score) for run, scores in links.items() for score in scores]
    figure = Picture(WIDTH, 1.8 + BAR * (len(rows) + len(links)))
    axis = figure.subplots()
    places = _place_bars([run for run, _ in rows])
    rates = [score.counts.aer for _, score in rows]
    colours = [KINDS[score.distribution] for _, score in rows]
    bars = axis.barh(places, rates, color=colours, height=0.85)
    axis.bar_label(bars, fmt="%.3f", fontsize=8, padding=2)
    axis.set_yticks(places, [escape(f"{run}: {score.head}") for run, score in rows])
    axis.invert_yaxis()
    axis.set_xlim(0, 1.08)
    axis.set_xlabel("alignment error rate (0: every link is right)")
    figure.legend(
        handles=[_explain_law(law) for law in KINDS if any(s.distribution == law for _, s in rows)],
        loc="outside lower center",
        ncols=2,
    )
    write_title(figure, f"Which source word does each word translate?\n{title}")
    return figure


def _place_bars(runs: Sequence[str]) -> list[int]:
    """A bar below the other, with a gap between two runs."""
    starts = [run != before for before, run in pairwise(runs)]
    return list(accumulate((1 + new for new in starts), initial=1)) if runs else []


def _explain_law(law: str) -> Patch:
    """The colour of a law, and what it is."""
    return Patch(color=KINDS[law], label=f"{law}: {NOTES[law]}" if law in NOTES else law)
