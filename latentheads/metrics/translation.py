"""BLEU and chrF of translations, with their signatures.

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
from collections.abc import Callable, Sequence
from typing import Any, get_args

import numpy as np
from sacrebleu.metrics import BLEU, CHRF

from latentheads.checks import check_choice
from latentheads.console import show_progress
from latentheads.metrics.protocol import Protocol
from latentheads.metrics.resampling import Counts, Metric, References

ORDER = 4
"""The longest n-grams of BLEU."""

CHUNK = 5_000
"""Most lines whose references are kept as n-grams, which take 40 kB a line; more are counted in
chunks."""

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
        tokenizer: The tokenizer of sacreBLEU; ``none`` if lines are tokenised already.
        lowercase: Whether case is ignored.
    """

    def __init__(self, tokenizer: str, lowercase: bool) -> None:
        super().__init__(lowercase=lowercase, tokenize=tokenizer, force=True)

    def _preprocess_segment(self, sent: str) -> str:
        return split_compounds(super()._preprocess_segment(sent))

    def get_signature(self) -> Any:
        """The signature of sacreBLEU, with the split of compounds."""
        signature = super().get_signature()
        signature.update("compound", "split")
        return signature


def bleu(references: References) -> Metric | None:
    """Makes sacreBLEU; None for transcripts."""
    options = {"tokenize": _tokenizer(references), "lowercase": references.lowercase}
    return _make_metric(BLEU(force=True, **options), references, _untested_bleu)


def chrf(references: References) -> Metric | None:
    """Makes chrF2; None for transcripts."""
    return _make_metric(CHRF(lowercase=references.lowercase), references)


def paper_bleu(references: References) -> Metric | None:
    """Makes the BLEU by the papers' protocol; None without a protocol."""
    if references.protocol is None:
        return None
    check_choice("protocol", references.protocol, get_args(Protocol), more=", or None")
    lowercase = references.lowercase or references.protocol == "iwslt14"
    metric = PaperBLEU(_tokenizer(references), lowercase)
    return _make_metric(metric, references, _untested_bleu)


def _untested_bleu(total: np.ndarray) -> str:
    """Why BLEU is not tested where no 4-gram matches; counts are two lengths, then matches."""
    if total[1 + ORDER]:
        return ""
    return "neither system has a 4-gram match: smoothing makes both scores"


def _tokenizer(references: References) -> str:
    return "none" if references.tokenised else "13a"


def _make_metric(
    metric: Any,
    references: References,
    untested: Callable[[np.ndarray], str] | None = None,
) -> Metric | None:
    """Wraps a metric of sacreBLEU, whose sufficient statistics are kept for each sentence."""
    if references.is_speech:
        return None

    def count(lines: Sequence[str]) -> Counts:
        if len(lines) > CHUNK:
            starts = show_progress(range(0, len(lines), CHUNK), "counting n-grams", "chunk")
            return np.concatenate([count_some(lines, start) for start in starts])
        if metric._ref_cache is None:  # the n-grams of references are those of every system
            metric._ref_cache = metric._cache_references([list(references.lines)])
        statistics = metric._extract_corpus_statistics(list(lines), None)
        return np.array(statistics, dtype=np.float64)

    def count_some(lines: Sequence[str], start: int) -> Counts:
        sides = [list(side[start : start + CHUNK]) for side in (lines, references.lines)]
        return np.array(metric._extract_corpus_statistics(sides[0], [sides[1]]), np.float64)

    return Metric(
        count,
        lambda total: float(metric._compute_score_from_stats(total).score),
        lambda: str(metric.get_signature()),
        untested=untested,
    )
