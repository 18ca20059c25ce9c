"""Names and meanings of the scores of written lines, and which of them comes first."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["CHIEF", "MEANINGS", "SCORES", "chief_score", "title_of"]

SCORES = {
    "accuracy": "accuracy, %",
    "edit_distance": "edit distance",
    "bleu": "BLEU",
    "chrf": "chrF",
    "paper_bleu": "papers' BLEU",
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rouge_l": "ROUGE-L",
    "wer": "WER, %",
    "cer": "CER, %",
    "paper_wer": "papers' WER, %",
}
"""The title of each score, by its name in a report."""

MEANINGS = {
    "accuracy": "of the translations: right to the letter",
    "edit_distance": "edits from a translation to the right one: fewer are better",
    "bleu": "of the translations",
    "chrf": "of the translations",
    "paper_bleu": "of the translations, by the papers' protocol",
    "rouge1": "of the summaries",
    "rouge2": "of the summaries",
    "rouge_l": "of the summaries",
    "wer": "of the transcripts, errors for a hundred words: fewer are better",
    "cer": "of the transcripts, errors for a hundred characters: fewer are better",
    "paper_wer": "of the transcripts, by the papers' protocol: fewer are better",
}
"""The meaning of each score."""

CHIEF = ("accuracy", "wer", "bleu")
"""The scores that may stand for all; the first that is known does."""


def title_of(score: str, part: str) -> str:
    """The title of a score of a part, such as "accuracy of german, %"."""
    title, comma, unit = SCORES[score].partition(", ")
    return f"{title} of {part}{comma}{unit}"


def chief_score(figures: Mapping[str, object]) -> str | None:
    """The name of the score that stands for all; None where nothing was written."""
    return next((name for name in CHIEF if figures.get(name) is not None), None)
