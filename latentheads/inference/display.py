"""Tables of scores for a notebook and a terminal, which explain each score."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape

from latentheads.metrics.scores import (
    Score,
    Scores,
    describe,
    format_value,
    shown_names,
    truth_coverage,
)

__all__ = ["TRUE_BOUND", "name_row", "scores_to_html", "scores_to_text"]

TRUE_BOUND = "a true bound"
"""The fault of a report whose bound lies above the truth."""

Parts = Mapping[str, Scores]
"""The scores of each part of a corpus by its name."""

HEAD = "nats per token"
"""The unit of all rows that name no other."""


def scores_to_html(parts: Parts, title: str = "", faults: Mapping[str, str] | None = None) -> str:
    """A table of scores, a row each and a column for each part.

    Args:
        parts: The scores of each part.
        title: What they are of.
        faults: What they lack, and why; of :data:`TRUE_BOUND` too.
    """
    head = "".join(f"<th>{escape(each)}</th>" for each in (HEAD, *parts, ""))
    faults = faults or {}
    lines = [_row(name, parts, faults) for name in shown_names([*parts.values()])]
    caption = f"<caption>{escape(title)}</caption>" if title else ""
    body = "".join(lines)
    below = "".join(f"<p>{escape(line)}</p>" for line in _format_faults(faults))
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"


def scores_to_text(parts: Parts, title: str = "", faults: Mapping[str, str] | None = None) -> str:
    """A table of scores for a terminal, a line each; see :func:`scores_to_html`."""
    faults = faults or {}
    names = shown_names([*parts.values()])
    rows = [(*name_row(name, parts), _explain(name, parts, faults)) for name in names]
    head = (HEAD, *parts, "")
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = []
    for label, *cells, what in (head, *rows):
        middle = (each.rjust(width) for each, width in zip(cells, widths[1:-1], strict=True))
        lines.append("  ".join([label.ljust(widths[0]), *middle, what]).rstrip())
    return "\n".join([*([title] if title else []), *lines, *_format_faults(faults)])


def _format_faults(faults: Mapping[str, str]) -> list[str]:
    return [f"lacks {name}: {why}" for name, why in faults.items()]


def _row(name: str, parts: Parts, faults: Mapping[str, str]) -> str:
    label, *numbers = name_row(name, parts)
    cells = "".join(f"<td>{each}</td>" for each in numbers)
    last = f'<td style="text-align: left">{escape(_explain(name, parts, faults))}</td>'
    return f'<tr><td style="text-align: left">{escape(label.strip())}</td>{cells}{last}</tr>'


def name_row(name: str, parts: Parts) -> tuple[str, ...]:
    """The title of a score with its unit, and its value in each part, with its 95 % interval."""
    rows = [scores.row(name) for scores in parts.values()]
    info, k = describe(name), _samples_of(parts)
    title = info.title.format(k=k) + (", %" if info.unit == "%" else "")
    if any(row is not None and row.interval for row in rows):
        title += " [95 % CI]"
    cells = ("" if row is None else _value_of(row) for row in rows)
    return ("  " * info.indented + title, *cells)


def _value_of(row: Score) -> str:
    value = format_value(row.value, row.unit)
    if row.interval is None:
        return value
    low, high = (format_value(end, row.unit) for end in row.interval)
    return f"{value} [{low}, {high}]"


def _samples_of(parts: Parts) -> str:
    """K of IWAE."""
    known = [scores.iwae_k for scores in parts.values() if scores.iwae_k is not None]
    return str(known[0]) if known else "K"


def _explain(name: str, parts: Parts, faults: Mapping[str, str]) -> str:
    """The meaning of a score."""
    meaning = describe(name).meaning.format(k=_samples_of(parts))
    if name == "truth":
        known = {part: truth_coverage(scores) for part, scores in parts.items()}
        of_some = [f"{part}: {each}" if part else each for part, each in known.items() if each]
        return "; ".join([meaning, *of_some])
    if name == "elbo" and (TRUE_BOUND in faults or not _all_finite(name, parts)):
        return "not shown to be a bound" + (": see below" if TRUE_BOUND in faults else "")
    return meaning


def _all_finite(name: str, parts: Parts) -> bool:
    """Whether a score is a number in every part that has it."""
    known = (scores.get(name) for scores in parts.values())
    return all(math.isfinite(value) for value in known if value is not None)
