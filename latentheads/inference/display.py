"""Tables of scores for notebooks and terminals, with the meaning of each score."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape

from latentheads.metrics.scores import (
    NATS,
    Score,
    Scores,
    describe,
    format_value,
    shown_names,
    truth_coverage,
)

TRUE_BOUND = "a true bound"
"""The fault of a report whose bound exceeds the true log-likelihood."""

Parts = Mapping[str, Scores]
"""The scores of each part of a corpus by its name."""


def scores_to_html(parts: Parts, title: str = "", faults: Mapping[str, str] | None = None) -> str:
    """An HTML table of scores with one column for each part, in nats per token if not stated.

    Args:
        parts: The scores of each part.
        title: The caption.
        faults: What is missing, and why; includes :data:`TRUE_BOUND` if the bound is not true.
    """
    header = "".join(f"<th>{escape(cell)}</th>" for cell in (NATS, *parts, ""))
    faults = faults or {}
    lines = [_row(name, parts, faults) for name in shown_names([*parts.values()])]
    caption = f"<caption>{escape(title)}</caption>" if title else ""
    body = "".join(lines)
    notes = "".join(f"<p>{escape(line)}</p>" for line in _format_faults(faults))
    return f"<table>{caption}<thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>{notes}"


def scores_to_text(parts: Parts, title: str = "", faults: Mapping[str, str] | None = None) -> str:
    """A table of scores for a terminal, one line for each; see :func:`scores_to_html`."""
    faults = faults or {}
    names = shown_names([*parts.values()])
    rows = [(*name_row(name, parts), _explain(name, parts, faults)) for name in names]
    header = (NATS, *parts, "")
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for label, *cells, meaning in (header, *rows):
        numbers = (cell.rjust(width) for cell, width in zip(cells, widths[1:-1], strict=True))
        lines.append("  ".join([label.ljust(widths[0]), *numbers, meaning]).rstrip())
    return "\n".join([*([title] if title else []), *lines, *_format_faults(faults)])


def _format_faults(faults: Mapping[str, str]) -> list[str]:
    return [f"not in the report: {name}: {reason}" for name, reason in faults.items()]


def _row(name: str, parts: Parts, faults: Mapping[str, str]) -> str:
    label, *numbers = name_row(name, parts)
    cells = "".join(f"<td>{number}</td>" for number in numbers)
    meaning = f'<td style="text-align: left">{escape(_explain(name, parts, faults))}</td>'
    return f'<tr><td style="text-align: left">{escape(label.strip())}</td>{cells}{meaning}</tr>'


def name_row(name: str, parts: Parts) -> tuple[str, ...]:
    """The title of a score with its unit, and its value in each part, with its 95 % interval."""
    rows = [scores.row(name) for scores in parts.values()]
    info, k = describe(name), _num_samples(parts)
    title = info.title.format(k=k) + (", %" if info.unit == "%" else "")
    if any(row is not None and row.interval for row in rows):
        title += " [95 % CI]"
    cells = ("" if row is None else _format_row(row) for row in rows)
    return ("  " * info.indented + title, *cells)


def _format_row(row: Score) -> str:
    value = format_value(row.value, row.unit)
    if row.interval is None:
        return value
    low, high = (format_value(end, row.unit) for end in row.interval)
    return f"{value} [{low}, {high}]"


def _num_samples(parts: Parts) -> str:
    """The number of samples of IWAE."""
    num_samples = [scores.iwae_k for scores in parts.values() if scores.iwae_k is not None]
    return str(num_samples[0]) if num_samples else "K"


def _explain(name: str, parts: Parts, faults: Mapping[str, str]) -> str:
    """The meaning of a score."""
    meaning = describe(name).meaning.format(k=_num_samples(parts))
    if name == "truth":
        texts = {part: truth_coverage(scores) for part, scores in parts.items()}
        coverages = [f"{part}: {text}" if part else text for part, text in texts.items() if text]
        return "; ".join([meaning, *coverages])
    if name == "elbo" and (TRUE_BOUND in faults or not _all_finite(name, parts)):
        return "not shown to be a bound" + (": see below" if TRUE_BOUND in faults else "")
    return meaning


def _all_finite(name: str, parts: Parts) -> bool:
    """Whether a score is a number in every part that has it."""
    values = (scores.get(name) for scores in parts.values())
    return all(math.isfinite(value) for value in values if value is not None)
