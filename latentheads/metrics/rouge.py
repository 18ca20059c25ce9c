"""How good summaries are: ROUGE-1, 2 and L against several references, and the lead to beat."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from statistics import fmean

__all__ = ["Rouge", "lead", "rouge"]

KINDS = ("rouge1", "rouge2", "rougeL")


@dataclass(frozen=True)
class Rouge:
    """F1 of the overlap with the references, 0 to 100, mean over summaries.

    Attributes:
        rouge1: Of words.
        rouge2: Of pairs of neighbouring words.
        rouge_l: Of the longest common subsequence.
        signature: How they were computed.
    """

    rouge1: float
    rouge2: float
    rouge_l: float
    signature: str


def rouge(summaries: Sequence[str], references: Sequence[Sequence[str]]) -> Rouge:
    """Scores summaries; of several references the nearest counts, in each measure on its own.

    Args:
        summaries: One text each.
        references: The texts that each is compared with.
    """
    from rouge_score.rouge_scorer import RougeScorer  # takes long to load

    if not references or any(not each for each in references):
        raise ValueError("every summary needs one reference or more")
    if len(summaries) != len(references):
        raise ValueError(
            f"{len(summaries)} summaries of {len(references)} references: one each is needed"
        )
    scorer = RougeScorer(KINDS, use_stemmer=True)
    pairs = zip(references, summaries, strict=True)
    found = [scorer.score_multi(list(right), text) for right, text in pairs]
    most = max(map(len, references))
    several = f"{min(map(len, references))}-{most}" if most > 1 else "1"
    signature = f"f1|nrefs:{several}|multi:max|stem:porter|rouge-score:{version('rouge-score')}"
    one, two, longest = (100 * fmean(each[kind].fmeasure for each in found) for kind in KINDS)
    return Rouge(one, two, longest, signature)


def lead(text: str) -> str:
    """The first sentence of a text: up to the first mark that ends one before a space."""
    return re.split(r"(?<=[.!?])\s", text.strip(), maxsplit=1)[0]
