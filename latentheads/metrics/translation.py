"""BLEU and chrF of translations with their signatures, and paired bootstrap tests between systems.

There are two kinds of BLEU:

* ``bleu`` is sacreBLEU's on raw text (``tok:13a``), comparable between papers; on tokenised text it
  is ``tok:none``;
* ``paper_bleu`` is the BLEU of the papers on IWSLT14 and WMT14, computed on request: compounds are
  split in hypotheses and references as in fairseq's ``compound_split_bleu.sh``. It is
  case-sensitive on WMT14 but not on IWSLT14, whose text the papers lower-case. The two are not
  comparable.

Where only an exact match is right, as for an inflected word, ``accuracy`` and ``edit_distance`` are
added on request: :mod:`latentheads.metrics.accuracy`.
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
    """Splits words at hyphens, exactly as fairseq's Perl does: byte by byte, left to right.

    ``well-known`` becomes ``well ##AT##-##AT## known``. A match consumes the byte on each side of
    the hyphen, hence ``a-b-c`` becomes ``a ##AT##-##AT## b-c``.
    """
    return COMPOUND.sub(rb"\1 ##AT##-##AT## \2", line.encode()).decode()


class PaperBLEU(BLEU):
    """BLEU of tokens with compounds split.

    Args:
        tokenised: Whether lines are tokenised already; otherwise 13a tokenises them.
        lowercase: Whether case is ignored.
    """

    def __init__(self, tokenised: bool, lowercase: bool) -> None:
        super().__init__(lowercase=lowercase, tokenize=_tokenizer(tokenised), force=True)

    def _preprocess_segment(self, sent: str) -> str:
        return split_compounds(super()._preprocess_segment(sent))

    def get_signature(self) -> Any:
        """The signature of sacreBLEU, with the split of compounds."""
        signature = super().get_signature()
        signature.update("compound", "split")
        return signature


@dataclass(frozen=True)
class Scores:
    """The scores of the translations of one system, 0 to 100 except for the edit distance.

    Attributes:
        bleu: sacreBLEU.
        bleu_signature: How it was computed.
        chrf: chrF2.
        chrf_signature: How it was computed.
        paper_bleu: BLEU by the papers' protocol; None if not requested.
        paper_signature: How it was computed.
        accuracy: Share of exact matches, in percent; None if not requested.
        accuracy_signature: How it was computed.
        edit_distance: Mean number of edits to the reference; None if not requested.
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
    """The scores of one system, compared with the baseline.

    Attributes:
        bleu: sacreBLEU.
        chrf: chrF2.
        paper_bleu: BLEU by the papers' protocol; None if not requested.
        accuracy: Share of exact matches, in percent; None if not requested.
        edit_distance: Mean number of edits to the reference; None if not requested.
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
        translations: The translation of each sentence.
        references: The reference of each sentence.
        tokenised: Whether lines are tokenised already, with spaces between tokens.
        protocol: Adds ``paper_bleu`` by this protocol.
        lowercase: Whether case is ignored; the signatures record it.
        accuracy: Adds ``accuracy`` and ``edit_distance``.
    """
    check_lines(translations, references)
    metrics = _make_metrics(references, tokenised, protocol, lowercase, accuracy)
    scores: dict[str, Any] = {}
    for name, metric in metrics.items():
        scores[name] = metric.measure(translations)
        scores[SIGNATURES[name]] = metric.signature()
    return Scores(**scores)


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
    """Compares systems with a baseline by paired bootstrap over sentences.

    Args:
        baseline: Translations of the baseline.
        others: Translations of each other system.
        references: The reference of each sentence.
        tokenised: Whether lines are tokenised already, with spaces between tokens.
        protocol: Adds ``paper_bleu`` by this protocol.
        resamples: Number of resamples; the smallest p-value is 1 / (resamples + 1).
        seed: Seed of the resampling.
        lowercase: Whether case is ignored.
        accuracy: Adds ``accuracy`` and ``edit_distance``.

    Returns:
        The baseline, then the others in order.
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
    sacrebleu_metrics = {"bleu": bleu, "chrf": CHRF(lowercase=lowercase)}
    if protocol is not None:
        sacrebleu_metrics["paper_bleu"] = PaperBLEU(tokenised, lowercase or protocol == "iwslt14")
    metrics = {name: _make_metric(metric, references) for name, metric in sacrebleu_metrics.items()}
    return metrics | (make_accuracy(references, tokenised, lowercase) if accuracy else {})


def _make_metric(metric: Any, references: Sequence[str]) -> Metric:
    """Wraps a metric of sacreBLEU, whose sufficient statistics are kept for each sentence."""

    def count(lines: Sequence[str]) -> Counts:
        statistics = metric._extract_corpus_statistics(list(lines), [list(references)])
        return np.array(statistics, dtype=np.float64)

    return Metric(
        count,
        lambda total: float(metric._compute_score_from_stats(total).score),
        lambda: str(metric.get_signature()),
        maximum=100.0,
    )
