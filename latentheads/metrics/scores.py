"""Names and descriptions of the scores of a system's output, and which is the primary one."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["MEANINGS", "PRIMARY_SCORES", "SCORES", "part_title", "primary_score"]

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
    "accuracy": "of the translations: exact matches",
    "edit_distance": "edits from a translation to its reference: fewer are better",
    "bleu": "of the translations",
    "chrf": "of the translations",
    "paper_bleu": "of the translations, by the papers' protocol",
    "rouge1": "of the summaries",
    "rouge2": "of the summaries",
    "rouge_l": "of the summaries",
    "wer": "of the transcripts, errors per 100 words: fewer are better",
    "cer": "of the transcripts, errors per 100 characters: fewer are better",
    "paper_wer": "of the transcripts, by the papers' protocol: fewer are better",
}
"""The description of each score."""

PRIMARY_SCORES = ("accuracy", "wer", "bleu")
"""The scores that may be the primary one; the first that a system has is."""


def part_title(score: str, part: str) -> str:
    """The title of a score of one part, such as "accuracy of german, %"."""
    title, comma, unit = SCORES[score].partition(", ")
    return f"{title} of {part}{comma}{unit}"


def primary_score(scores: Mapping[str, object]) -> str | None:
    """The name of the primary score; None if there is no score of output."""
    return next((name for name in PRIMARY_SCORES if scores.get(name) is not None), None)
