"""Tables of figures for a notebook and a terminal, which explain each figure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from typing import Any

from latentheads.metrics.scores import MEANINGS, SCORES

__all__ = ["TRUE_BOUND", "figures_to_html", "figures_to_text", "tell_known"]

ROWS = {
    "elbo": ("bound (ELBO)", "a true bound: the next row less the one after"),
    "log_likelihood": ("log-likelihood term", "mean of log p(y | z, x) under the guide"),
    "kl": ("KL, all sites", "what the guide pays to differ from the prior"),
    "iwae": ("bound (IWAE_{k})", "tighter; a mean of {k} weighed draws"),
    "exact": ("exact log p", "all alignments summed"),
    "gap": ("gap", "of the guide's alignments to the exact ones, given all other heads"),
    "truth": ("true log p", "of the corpus itself, not of the model"),
    "truth_elbo": ("bound (ELBO) of these sentences", "to be compared with the row above"),
    "plug_in": ("plug-in network", "another model, without noise: no bound"),
    **{name: (title, MEANINGS[name]) for name, title in SCORES.items()},
}
"""The title and the meaning of each figure."""

TRUE_BOUND = "a true bound"
"""The fault of a report whose bound lies above the truth."""


def figures_to_html(
    parts: Mapping[str, Mapping[str, Any]], title: str = "", faults: Mapping[str, str] | None = None
) -> str:
    """A table of figures, in nats a target token, a column a part.

    Args:
        parts: The figures of each part by their names, those of a report; None or nothing where one
            is not known.
        title: What they are of.
        faults: What they lack, and why; of :data:`TRUE_BOUND` too.
    """
    head = "".join(f"<th>{escape(each)}</th>" for each in ("nats a target token", *parts, ""))
    faults = faults or {}
    lines = [_row(name, parts, faults) for name in ROWS if _is_shown(name, parts)]
    caption = f"<caption>{escape(title)}</caption>" if title else ""
    body = "".join(lines)
    below = "".join(f"<p>{escape(line)}</p>" for line in _say_faults(faults))
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"


def figures_to_text(
    parts: Mapping[str, Mapping[str, Any]], title: str = "", faults: Mapping[str, str] | None = None
) -> str:
    """A table of figures for a terminal, a line a figure; see :func:`figures_to_html`."""
    faults = faults or {}
    shown = (_name_row(name, parts, faults) for name in ROWS if _is_shown(name, parts))
    rows = [(label, *cells, what) for label, cells, what in shown]
    head = ("nats a target token", *parts, "")
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = []
    for label, *cells, what in (head, *rows):
        middle = (each.rjust(width) for each, width in zip(cells, widths[1:-1], strict=True))
        lines.append("  ".join([label.ljust(widths[0]), *middle, what]).rstrip())
    return "\n".join([*([title] if title else []), *lines, *_say_faults(faults)])


def _say_faults(faults: Mapping[str, str]) -> list[str]:
    return [f"lacks {name}: {why}" for name, why in faults.items()]


def _is_shown(name: str, parts: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a part knows a figure that says something.

    Where log p is exact, the plug-in network is that law, and IWAE an estimate of it; of one draw
    IWAE is the bound; where the truth is known of all sentences, their bound has its row.
    """
    if name == "truth_elbo" and not any(map(tell_known, parts.values())):
        return False
    if name in ("plug_in", "iwae") and _is_shown("exact", parts):
        return False
    if name == "iwae" and all(each.get("iwae_k") == 1 for each in parts.values()):
        return False
    return any(figures.get(name) is not None for figures in parts.values())


def _row(name: str, parts: Mapping[str, Mapping[str, Any]], faults: Mapping[str, str]) -> str:
    label, numbers, what = _name_row(name, parts, faults)
    cells = "".join(f"<td>{each}</td>" for each in numbers)
    last = f'<td style="text-align: left">{escape(what)}</td>'
    return f'<tr><td style="text-align: left">{escape(label)}</td>{cells}{last}</tr>'


def _name_row(
    name: str, parts: Mapping[str, Mapping[str, Any]], faults: Mapping[str, str]
) -> tuple[str, list[str], str]:
    """The title of a figure, its value in each part, and its meaning."""
    known = [each["iwae_k"] for each in parts.values() if each.get("iwae_k") is not None]
    label, what = (said.format(k=known[0] if known else "K") for said in ROWS[name])
    if name == "truth":
        said = {part: tell_known(figures) for part, figures in parts.items()}
        of_some = [f"{part}: {each}" if part else each for part, each in said.items() if each]
        what = "; ".join([what, *of_some])
    if name == "elbo" and (TRUE_BOUND in faults or not _all_finite(name, parts)):
        what = "not shown to be a bound" + (": see below" if TRUE_BOUND in faults else "")
    digits = 2 if name in SCORES else 4
    return label, [_number(each.get(name), digits) for each in parts.values()], what


def _all_finite(name: str, parts: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a figure is a number in every part that has it."""
    known = (figures.get(name) for figures in parts.values())
    return all(math.isfinite(value) for value in known if value is not None)


def tell_known(figures: Mapping[str, Any]) -> str:
    """How many sentences the truth is known of; empty where it is all, or none."""
    known, every = figures.get("truth_sentences"), figures.get("sentences")
    if figures.get("truth") is None or None in (known, every) or known == every:
        return ""
    return f"of {known:,} of {every:,} sentences"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
