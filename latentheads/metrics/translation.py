"""How good translations are: BLEU and chrF with their signatures, paired tests between systems.

Two figures both called BLEU are kept apart by name:

* ``bleu`` is sacreBLEU's on raw text (``tok:13a``), comparable between papers; of a corpus whose
  lines are its tokens, ``tok:none``;
* ``paper_bleu`` is what the papers on IWSLT14 and WMT14 print, on request only: of tokens whose
  compounds are split on both sides as in fairseq's ``compound_split_bleu.sh``. Case counts on WMT14
  and not on IWSLT14, whose text the papers lower-case. It is never comparable with the first.

Where a translation is right or wrong as a whole, as an inflected word is, ``accuracy`` and
``edit_distance`` are added on request: :mod:`latentheads.metrics.accuracy`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from sacrebleu.metrics import BLEU, CHRF

from latentheads.checks import check_known
from latentheads.metrics.accuracy import make_accuracy
from latentheads.metrics.protocol import Protocol
from latentheads.metrics.resampling import (
    RESAMPLES,
    SEED,
    Counts,
    Estimate,
    Metric,
    check_lines,
    compare_lines,
)

__all__ = [
    "Comparison",
    "Estimate",
    "Protocol",
    "Scores",
    "paired_bootstrap",
    "score",
    "split_compounds",
]

SIGNATURES = {
    "bleu": "bleu_signature",
    "chrf": "chrf_signature",
    "paper_bleu": "paper_signature",
    "accuracy": "accuracy_signature",
    "edit_distance": "edit_signature",
}
"""The field of :class:`Scores` that holds the signature of a score."""

COMPOUND = re.compile(rb"(\S)-(\S)")


def split_compounds(line: str) -> str:
    """Cuts words at their hyphens, exactly as fairseq's Perl does: byte by byte, left to right.

    ``well-known`` becomes ``well ##AT##-##AT## known``. A cut uses up the byte on each side of its
    hyphen, hence ``a-b-c`` becomes ``a ##AT##-##AT## b-c``.
    """
    return COMPOUND.sub(rb"\1 ##AT##-##AT## \2", line.encode()).decode()


class PaperBLEU(BLEU):
    """BLEU on tokens with compounds split.

    Args:
        tokenised: Whether the lines are tokenised already; 13a does it otherwise.
        lowercase: Whether case counts for nothing.
    """

    def __init__(self, tokenised: bool, lowercase: bool) -> None:
        super().__init__(lowercase=lowercase, tokenize=_tokenizer(tokenised), force=True)

    def _preprocess_segment(self, sent: str) -> str:
        return split_compounds(super()._preprocess_segment(sent))

    def get_signature(self) -> Any:
        """Says what was done to the text."""
        signature = super().get_signature()
        signature.update("compound", "split")
        return signature


@dataclass(frozen=True)
class Scores:
    """How good the translations of one system are, 0 to 100 but for the edit distance.

    Attributes:
        bleu: sacreBLEU.
        bleu_signature: How it was computed.
        chrf: chrF2.
        chrf_signature: How it was computed.
        paper_bleu: BLEU by the papers' protocol; None where it was not asked for.
        paper_signature: How it was computed.
        accuracy: Share of translations that are right to the letter, in percent; None where it was
            not asked for.
        accuracy_signature: How it was computed.
        edit_distance: Mean number of edits to the right one; None with accuracy.
        edit_signature: How it was computed.
    """

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str
    paper_bleu: float | None = None
    paper_signature: str | None = None
    accuracy: float | None = None
    accuracy_signature: str | None = None
    edit_distance: float | None = None
    edit_signature: str | None = None


@dataclass(frozen=True)
class Comparison:
    """One system beside the baseline.

    Attributes:
        bleu: sacreBLEU.
        chrf: chrF2.
        paper_bleu: BLEU by the papers' protocol; None where it was not asked for.
        accuracy: Share that is right to the letter, in percent; None where it was not asked for.
        edit_distance: Mean number of edits to the right one; None with accuracy.
    """

    bleu: Estimate
    chrf: Estimate
    paper_bleu: Estimate | None = None
    accuracy: Estimate | None = None
    edit_distance: Estimate | None = None


def score(
    translations: Sequence[str],
    references: Sequence[str],
    tokenised: bool = False,
    protocol: Protocol | None = None,
    lowercase: bool = False,
    accuracy: bool = False,
) -> Scores:
    """Scores the translations of one system.

    Args:
        translations: One sentence each.
        references: The translation of each sentence that counts as right.
        tokenised: Whether the lines are tokenised already, words with spaces between.
        protocol: Adds ``paper_bleu``, as the papers on this data set count it.
        lowercase: Whether case counts for nothing; the signatures say so.
        accuracy: Adds ``accuracy`` and ``edit_distance``.
    """
    check_lines(translations, references)
    metrics = _make_metrics(references, tokenised, protocol, lowercase, accuracy)
    found: dict[str, Any] = {}
    for name, metric in metrics.items():
        found[name] = metric.measure(translations)
        found[SIGNATURES[name]] = metric.sign()
    return Scores(**found)


def paired_bootstrap(
    baseline: Sequence[str],
    others: Sequence[Sequence[str]],
    references: Sequence[str],
    tokenised: bool = False,
    protocol: Protocol | None = None,
    resamples: int = RESAMPLES,
    seed: int = SEED,
    lowercase: bool = False,
    accuracy: bool = False,
) -> list[Comparison]:
    """Compares systems with a baseline on resampled sentences, the same ones for all systems.

    Args:
        baseline: Translations of the system that the others are compared with.
        others: Translations of each other system.
        references: The translation of each sentence that counts as right.
        tokenised: Whether the lines are tokenised already, words with spaces between.
        protocol: Adds ``paper_bleu``, as the papers on this data set count it.
        resamples: How often the corpus is resampled; the least p is 1 / (resamples + 1).
        seed: Of the resamples.
        lowercase: Whether case counts for nothing.
        accuracy: Adds ``accuracy`` and ``edit_distance``.

    Returns:
        The baseline, then the others in their order.
    """
    metrics = _make_metrics(references, tokenised, protocol, lowercase, accuracy)
    rows = compare_lines([baseline, *others], references, metrics, resamples, seed)
    return [Comparison(**row) for row in rows]


def _tokenizer(tokenised: bool) -> str:
    return "none" if tokenised else "13a"


def _make_metrics(
    references: Sequence[str],
    tokenised: bool,
    protocol: Protocol | None,
    lowercase: bool,
    accuracy: bool,
) -> dict[str, Metric]:
    if protocol is not None:
        check_known("protocol", protocol, get_args(Protocol), more=", or None")
    bleu = BLEU(tokenize=_tokenizer(tokenised), force=True, lowercase=lowercase)
    counted = {"bleu": bleu, "chrf": CHRF(lowercase=lowercase)}
    if protocol is not None:
        counted["paper_bleu"] = PaperBLEU(tokenised, lowercase or protocol == "iwslt14")
    metrics = {name: _make_metric(metric, references) for name, metric in counted.items()}
    return metrics | (make_accuracy(references, tokenised, lowercase) if accuracy else {})


def _make_metric(metric: Any, references: Sequence[str]) -> Metric:
    """A metric of sacreBLEU, of counts that are kept a sentence."""

    def count(lines: Sequence[str]) -> Counts:
        found = metric._extract_corpus_statistics(list(lines), [list(references)])
        return np.array(found, dtype=np.float64)

    return Metric(
        count,
        lambda total: float(metric._compute_score_from_stats(total).score),
        lambda: str(metric.get_signature()),
        most=100.0,
    )
