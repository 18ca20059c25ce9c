"""Tables of a report's figures for notebooks and terminals, with the meaning of each figure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from typing import Any

from latentheads.metrics.scores import MEANINGS, SCORES

__all__ = ["TRUE_BOUND", "figures_to_html", "figures_to_text", "truth_coverage"]

ROWS = {
    "elbo": ("bound (ELBO)", "evidence lower bound: the log-likelihood term minus the KL"),
    "log_likelihood": ("log-likelihood term", "expectation of log p(y | z, x) under the guide"),
    "kl": ("KL, all sites", "from the guide to the prior"),
    "iwae": ("bound (IWAE_{k})", "importance-weighted bound of {k} samples: tighter"),
    "exact": ("exact log p", "all alignments summed"),
    "gap": ("gap", "KL from the guide's alignments to their exact posterior"),
    "truth": ("true log p", "of the process that generated the corpus, not of the model"),
    "truth_elbo": ("bound (ELBO) of these sentences", "compare with the row above"),
    "plug_in": ("plug-in network", "heads set to the prior mean: no bound"),
    **{name: (title, MEANINGS[name]) for name, title in SCORES.items()},
}
"""The title and the meaning of each figure."""

TRUE_BOUND = "a true bound"
"""The fault of a report whose bound exceeds the true log-likelihood."""


def figures_to_html(
    parts: Mapping[str, Mapping[str, Any]], title: str = "", faults: Mapping[str, str] | None = None
) -> str:
    """An HTML table of figures in nats per target token, with one column for each part.

    Args:
        parts: The figures of each part by their names in a report; None, or missing, if unknown.
        title: The caption.
        faults: What is missing, and why; includes :data:`TRUE_BOUND` if the bound is none.
    """
    header = "".join(f"<th>{escape(cell)}</th>" for cell in ("nats per target token", *parts, ""))
    faults = faults or {}
    lines = [_row(name, parts, faults) for name in ROWS if _is_shown(name, parts)]
    caption = f"<caption>{escape(title)}</caption>" if title else ""
    body = "".join(lines)
    notes = "".join(f"<p>{escape(line)}</p>" for line in _format_faults(faults))
    return f"<table>{caption}<thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>{notes}"


def figures_to_text(
    parts: Mapping[str, Mapping[str, Any]], title: str = "", faults: Mapping[str, str] | None = None
) -> str:
    """A table of figures for a terminal, one line for each; see :func:`figures_to_html`."""
    faults = faults or {}
    described = (_name_row(name, parts, faults) for name in ROWS if _is_shown(name, parts))
    rows = [(label, *cells, meaning) for label, cells, meaning in described]
    header = ("nats per target token", *parts, "")
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for label, *cells, meaning in (header, *rows):
        numbers = (cell.rjust(width) for cell, width in zip(cells, widths[1:-1], strict=True))
        lines.append("  ".join([label.ljust(widths[0]), *numbers, meaning]).rstrip())
    return "\n".join([*([title] if title else []), *lines, *_format_faults(faults)])


def _format_faults(faults: Mapping[str, str]) -> list[str]:
    return [f"lacks {name}: {reason}" for name, reason in faults.items()]


def _is_shown(name: str, parts: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a figure is known and not redundant.

    If log p is exact, the plug-in network has the same value and IWAE estimates it. IWAE of one
    sample is the bound. If the true log p is known of all sentences, their bound has its own row.
    """
    if name == "truth_elbo" and not any(map(truth_coverage, parts.values())):
        return False
    if name in ("plug_in", "iwae") and _is_shown("exact", parts):
        return False
    if name == "iwae" and all(figures.get("iwae_k") == 1 for figures in parts.values()):
        return False
    return any(figures.get(name) is not None for figures in parts.values())


def _row(name: str, parts: Mapping[str, Mapping[str, Any]], faults: Mapping[str, str]) -> str:
    label, numbers, meaning = _name_row(name, parts, faults)
    cells = "".join(f"<td>{number}</td>" for number in numbers)
    meaning_cell = f'<td style="text-align: left">{escape(meaning)}</td>'
    return f'<tr><td style="text-align: left">{escape(label)}</td>{cells}{meaning_cell}</tr>'


def _name_row(
    name: str, parts: Mapping[str, Mapping[str, Any]], faults: Mapping[str, str]
) -> tuple[str, list[str], str]:
    """The title of a figure, its value in each part, and its meaning."""
    iwae_ks = [part["iwae_k"] for part in parts.values() if part.get("iwae_k") is not None]
    label, meaning = (text.format(k=iwae_ks[0] if iwae_ks else "K") for text in ROWS[name])
    if name == "truth":
        texts = {part: truth_coverage(figures) for part, figures in parts.items()}
        coverages = [f"{part}: {text}" if part else text for part, text in texts.items() if text]
        meaning = "; ".join([meaning, *coverages])
    if name == "elbo" and (TRUE_BOUND in faults or not _all_finite(name, parts)):
        meaning = "not shown to be a bound" + (": see below" if TRUE_BOUND in faults else "")
    digits = 2 if name in SCORES else 4
    return label, [_number(figures.get(name), digits) for figures in parts.values()], meaning


def _all_finite(name: str, parts: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a figure is a number in every part that has it."""
    values = (figures.get(name) for figures in parts.values())
    return all(math.isfinite(value) for value in values if value is not None)


def truth_coverage(figures: Mapping[str, Any]) -> str:
    """The number of sentences whose true log p is known; empty if it is all or none."""
    num_known, num_sentences = figures.get("truth_sentences"), figures.get("sentences")
    unknown = figures.get("truth") is None or None in (num_known, num_sentences)
    if unknown or num_known == num_sentences:
        return ""
    return f"of {num_known:,} of {num_sentences:,} sentences"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
