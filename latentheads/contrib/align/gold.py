"""Gold links of the lines of a text, and the scores of an aligner's links against them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from latentheads.corpora.text import iterate_lines
from latentheads.errors import naming
from latentheads.metrics.alignment import (
    Links,
    ScoreOfLinks,
    count_by_sentence,
    count_links,
    read_gold,
    score_interval,
    write_pharaoh,
)

GoldLinks = tuple[Links, Links]
"""The sure and the possible links of a line."""

SCORES: dict[ScoreOfLinks, str] = {
    "aer": "AER",
    "precision": "precision",
    "recall": "recall",
    "f1": "F1",
}
"""What scores are called."""


def read_gold_file(path: str | Path) -> list[GoldLinks]:
    """Reads the sure and the possible links of every line, as :func:`.read_gold` does.

    Raises:
        ValueError: The file cannot be read, or has no links.
    """
    gold: list[GoldLinks] = []
    for number, line in enumerate(iterate_lines(path), 1):
        with naming(f"{path}, line {number}"):
            gold.append(read_gold(line))
    while gold and not any(gold[-1]):  # lines that end a file
        gold.pop()
    if not gold:
        raise ValueError(f"{path} has no links")
    return gold


def check_gold_links(gold: GoldLinks, source: int, target: int) -> None:
    """Raises an error for a link to a word that a line does not have, such as one counted from 1.

    Args:
        gold: The links.
        source: The words of the source.
        target: Those of the target.
    """
    for link in sorted({*gold[0], *gold[1]}):
        if link[0] >= source or link[1] >= target:
            raise ValueError(
                f"link {write_pharaoh([link])} is outside of {source} and {target} words, which "
                "count from 0"
            )


def describe_gold_scores(links: Sequence[Links], gold: Sequence[GoldLinks]) -> str:
    """Scores of the links of lines, each with its 95 % interval over lines.

    A line without gold links is not scored.

    Raises:
        ValueError: There are more lines of gold links.
    """
    if len(gold) > len(links):
        raise ValueError(f"{len(gold):,} lines have gold links, and {len(links):,} are aligned")
    triples = [(own, *of_line) for own, of_line in zip(links, gold) if any(of_line)]
    predicted, sure, possible = zip(*triples)
    counts = count_links(predicted, sure, possible)
    by_line = count_by_sentence(predicted, sure, possible)
    scores = []
    for score, name in SCORES.items():
        low, high = score_interval(by_line, score)
        interval = "" if math.isnan(low) else f" [{low:.3f}, {high:.3f}]"
        scores.append(f"{name} {getattr(counts, score):.3f}{interval}")
    return f"{', '.join(scores)}; {len(triples):,} lines"
