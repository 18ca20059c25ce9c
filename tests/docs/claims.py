"""Sentences and rows of tables that claim a difference whose interval holds 0."""

from __future__ import annotations

import re
from collections.abc import Iterator

VALUE = r"[+-]?(?:\d+\.?\d*|\.\d+)"
UNIT = r"(?: (?:nats|points|BLEU|chrF|%))?"
INTERVAL = re.compile(rf"(?<![\w.])({VALUE}){UNIT} \[({VALUE}), ({VALUE})\]")
SPREAD = re.compile(rf"(?<![\w.])({VALUE}) ± ({VALUE})")

DIRECTION = re.compile(
    r"\b(?:better|best|worse|worst|more|fewer|gains?|gained|loses?|losses|lost|loss|costs?|higher"
    r"|highest|lower|lowest|smaller|larger|greater|beats?|improves?|improved|improvement|helps?"
    r"|hurts?|ahead|behind|faster|slower|rises?|falls?|decreases?|increases?|above|below|exceeds?)\b",
    re.IGNORECASE,
)
"""``less`` is no such word here: tables say "chain less plain" of a difference."""

UNDECIDED = re.compile(
    r"\bn\.s\.|\b(?:not|no|nor|none|neither|without)\b[^.;|]*?\bsignifican|insignificant"
    r"|\b(?:contains?|holds?|includes?) 0\b",
    re.IGNORECASE,
)
"""What is said where a difference is not significant."""


def statements(text: str) -> Iterator[str]:
    """The sentences of a page in Markdown, and the rows of its tables."""
    text = text.replace("\N{MINUS SIGN}", "-").replace("**", "")
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[*-]|\d+\.) )|\n(?=\||#)", text):
        if block.startswith("|"):
            yield block
            continue
        yield from re.split(r"(?<!n\.s\.)(?<=[.!?])\s+(?=[^\w\s]*[A-Z])", " ".join(block.split()))


def holds_zero(statement: str) -> list[str]:
    """Its intervals that lie on both sides of 0."""
    intervals = [
        match[0]
        for match in INTERVAL.finditer(statement)
        if float(match[2]) <= float(match[1]) <= float(match[3])
        and float(match[2]) < 0 < float(match[3])
    ]
    spreads = [m[0] for m in SPREAD.finditer(statement) if abs(float(m[1])) < float(m[2])]
    return intervals + spreads


def claims(text: str) -> list[tuple[str, list[str]]]:
    """Statements with a direction and an interval that holds 0, without a word that it does."""
    actual = []
    for statement in statements(text):
        undecided = holds_zero(statement)
        words = re.sub(r"`[^`]*`|\]\([^)]*\)", "", statement)
        directed = DIRECTION.search(words)
        if undecided and directed and not UNDECIDED.search(words):
            actual.append((statement, undecided))
    return actual
