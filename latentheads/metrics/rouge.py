"""How good summaries are: ROUGE-1, 2 and L against several references, and the lead to beat."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from statistics import fmean

__all__ = ["Rouge", "lead", "rouge"]

KINDS = ("rouge1", "rouge2", "rougeL")

FOREIGN = 0.005
"""Share of letters beyond a to z from which a text is not of English: there names have some."""


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

    Words are those of ``rouge-score``, of a to z and 0 to 9, without English endings. Of references
    in which more than one letter of 200 is another, words are of letters, marks and numbers of any
    script, as they stand; a text without spaces between words is not cut.

    Args:
        summaries: One text each.
        references: The texts that each is compared with.

    Raises:
        ValueError: A summary has no reference, or references are no lists of texts.
    """
    from rouge_score.rouge_scorer import RougeScorer  # takes long to load

    if not references or any(not each for each in references):
        raise ValueError("every summary needs one reference or more")
    if len(summaries) != len(references):
        raise ValueError(
            f"{len(summaries)} summaries of {len(references)} references: one each is needed"
        )
    if any(isinstance(each, str) for each in references):  # it would be read letter by letter
        raise ValueError("references must be a list of texts for each summary, got a text")
    foreign = _is_foreign("".join(text for each in references for text in each))
    kept = {"tokenizer": _AnyWords()} if foreign else {"use_stemmer": True}
    scorer = RougeScorer(KINDS, **kept)
    pairs = zip(references, summaries, strict=True)
    found = [scorer.score_multi(list(right), text) for right, text in pairs]
    most = max(map(len, references))
    several = f"{min(map(len, references))}-{most}" if most > 1 else "1"
    words = "tok:any|stem:none" if foreign else "stem:porter"
    signature = f"f1|nrefs:{several}|multi:max|{words}|rouge-score:{version('rouge-score')}"
    one, two, longest = (100 * fmean(each[kind].fmeasure for each in found) for kind in KINDS)
    return Rouge(one, two, longest, signature)


class _AnyWords:
    """Words of any script, in lower case, where rouge-score asks for some."""

    def tokenize(self, text: str) -> list[str]:
        """The words of a text.

        Args:
            text: The text.
        """
        composed = unicodedata.normalize("NFC", text.lower())
        kept = (sign if unicodedata.category(sign)[0] in "LMN" else " " for sign in composed)
        return "".join(kept).split()


def _is_foreign(text: str) -> bool:
    """Whether a text is not of English."""
    letters = [letter for letter in unicodedata.normalize("NFC", text) if letter.isalpha()]
    return sum(not letter.isascii() for letter in letters) > FOREIGN * len(letters)


def lead(text: str) -> str:
    """The first sentence of a text: up to the first mark that ends one before a space."""
    return re.split(r"(?<=[.!?])\s", text.strip(), maxsplit=1)[0]
