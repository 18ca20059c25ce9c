"""ROUGE-1, 2 and L of summaries against several references, and the lead baseline."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from statistics import fmean

from latentheads.checks import check_as_many, check_list

ROUGE_TYPES = ("rouge1", "rouge2", "rougeL")

NON_ENGLISH_SHARE = 0.005
"""Share of letters beyond a to z from which a text is not English: English names have a few."""


@dataclass(frozen=True)
class Rouge:
    """F1 of the overlap with the references, 0 to 100, mean over summaries.

    Attributes:
        rouge1: Of unigrams.
        rouge2: Of bigrams.
        rouge_l: Of the longest common subsequence of a whole summary, ``rougeL`` of rouge-score.
            Of summaries of several sentences papers mostly give ``rougeLsum``, which is higher.
        signature: How they were computed.
    """

    rouge1: float
    rouge2: float
    rouge_l: float
    signature: str


def rouge(summaries: Sequence[str], references: Sequence[Sequence[str]]) -> Rouge:
    """Scores summaries; each measure takes the maximum over the references of a summary.

    Words are those of ``rouge-score``, of a to z and 0 to 9, with Porter stemming. If more than one
    letter of 200 in the references is another, words are of letters, marks and numbers of any
    script, without stemming; a text without spaces between words is not segmented.

    Raises:
        ValueError: A summary has no reference, or references are not lists of texts.
    """
    from rouge_score.rouge_scorer import RougeScorer  # slow to import

    if not references or not all(references):
        raise ValueError("every summary needs one reference or more")
    check_list("summaries", summaries)
    check_as_many("summaries", summaries, "references", references)
    for texts in references:
        check_list("references of a summary", texts)
    foreign = _is_not_english("".join(text for texts in references for text in texts))
    options = {"tokenizer": _UnicodeWordTokenizer()} if foreign else {"use_stemmer": True}
    scorer = RougeScorer(ROUGE_TYPES, **options)
    pairs = zip(references, summaries, strict=True)
    scores = [scorer.score_multi(list(texts), summary) for texts, summary in pairs]
    most = max(map(len, references))
    number = f"{min(map(len, references))}-{most}" if most > 1 else "1"
    words = "tok:any|stem:none" if foreign else "stem:porter"
    signature = f"f1|nrefs:{number}|multi:max|{words}|rouge-score:{version('rouge-score')}"
    rouge1, rouge2, rouge_l = (
        100 * fmean(score[kind].fmeasure for score in scores) for kind in ROUGE_TYPES
    )
    return Rouge(rouge1, rouge2, rouge_l, signature)


class _UnicodeWordTokenizer:
    """A tokenizer for rouge-score: lower-cased words of any script."""

    def tokenize(self, text: str) -> list[str]:
        """Splits a text into words."""
        composed = unicodedata.normalize("NFC", text.lower())
        words = (c if unicodedata.category(c)[0] in "LMN" else " " for c in composed)
        return "".join(words).split()


def _is_not_english(text: str) -> bool:
    """Whether a text has too many letters beyond a to z to be English."""
    letters = [letter for letter in unicodedata.normalize("NFC", text) if letter.isalpha()]
    return sum(not letter.isascii() for letter in letters) > NON_ENGLISH_SHARE * len(letters)


def first_sentence(text: str) -> str:
    """The first sentence of a text, up to a full stop, ! or ? before a space: the lead baseline."""
    return re.split(r"(?<=[.!?])\s", text.strip(), maxsplit=1)[0]
