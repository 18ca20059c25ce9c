"""Tables of figures for a notebook and a terminal, which explain each figure."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from latentheads.metrics.scores import MEANINGS, SCORES

__all__ = ["figures_to_html", "figures_to_text", "tell_known"]

ROWS = {
    "elbo": ("bound (ELBO)", "a true bound: the next row less the one after"),
    "log_likelihood": ("log-likelihood term", "mean of log p(y | z, x) under the guide"),
    "kl": ("KL, all sites", "what the guide pays to differ from the prior"),
    "iwae": ("bound (IWAE_{k})", "tighter; a mean of {k} weighed draws"),
    "exact": ("exact log p", "all alignments summed"),
    "gap": ("gap", "what the bound lacks of the exact posterior"),
    "truth": ("true log p", "of the corpus itself, not of the model"),
    "truth_elbo": ("bound (ELBO) of these sentences", "to be compared with the row above"),
    "plug_in": ("plug-in network", "another model, without noise: no bound"),
    **{name: (title, MEANINGS[name]) for name, title in SCORES.items()},
}
"""The title and the meaning of each figure."""


def figures_to_html(parts: Mapping[str, Mapping[str, Any]], title: str = "") -> str:
    """A table of figures, in nats a target token, a column a part.

    Args:
        parts: The figures of each part by their names, those of a report; None or nothing where one
            is not known.
        title: What they are of.
    """
    head = "".join(f"<th>{escape(each)}</th>" for each in ("nats a target token", *parts, ""))
    lines = [_row(name, parts) for name in ROWS if _is_shown(name, parts)]
    caption = f"<caption>{escape(title)}</caption>" if title else ""
    body = "".join(lines)
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def figures_to_text(parts: Mapping[str, Mapping[str, Any]], title: str = "") -> str:
    """A table of figures for a terminal, a line a figure; see :func:`figures_to_html`."""
    rows = [
        (label, *cells, what)
        for label, cells, what in (
            _name_row(name, parts) for name in ROWS if _is_shown(name, parts)
        )
    ]
    head = ("nats a target token", *parts, "")
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = []
    for label, *cells, what in (head, *rows):
        middle = (each.rjust(width) for each, width in zip(cells, widths[1:-1], strict=True))
        lines.append("  ".join([label.ljust(widths[0]), *middle, what]).rstrip())
    return "\n".join([*([title] if title else []), *lines])


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


def _row(name: str, parts: Mapping[str, Mapping[str, Any]]) -> str:
    label, numbers, what = _name_row(name, parts)
    cells = "".join(f"<td>{each}</td>" for each in numbers)
    last = f'<td style="text-align: left">{escape(what)}</td>'
    return f'<tr><td style="text-align: left">{escape(label)}</td>{cells}{last}</tr>'


def _name_row(name: str, parts: Mapping[str, Mapping[str, Any]]) -> tuple[str, list[str], str]:
    """The title of a figure, its value in each part, and its meaning."""
    known = [each["iwae_k"] for each in parts.values() if each.get("iwae_k") is not None]
    label, what = (said.format(k=known[0] if known else "K") for said in ROWS[name])
    if name == "truth":
        said = {part: tell_known(figures) for part, figures in parts.items()}
        of_some = [f"{part}: {each}" if part else each for part, each in said.items() if each]
        what = "; ".join([what, *of_some])
    digits = 2 if name in SCORES else 4
    return label, [_number(each.get(name), digits) for each in parts.values()], what


def tell_known(figures: Mapping[str, Any]) -> str:
    """How many sentences the truth is known of; empty where it is all, or none."""
    known, every = figures.get("truth_sentences"), figures.get("sentences")
    if figures.get("truth") is None or None in (known, every) or known == every:
        return ""
    return f"of {known:,} of {every:,} sentences"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
