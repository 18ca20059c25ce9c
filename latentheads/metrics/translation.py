"""How good translations are: BLEU and chrF with their signatures.

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
from typing import Any, get_args

import numpy as np
from sacrebleu.metrics import BLEU, CHRF

from latentheads.checks import check_known
from latentheads.metrics.protocol import Protocol
from latentheads.metrics.resampling import Counts, Metric, References

__all__ = ["Protocol", "bleu", "chrf", "paper_bleu", "split_compounds"]

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
        tokenizer: Of sacreBLEU; ``none`` where lines are tokenised already.
        lowercase: Whether case counts for nothing.
    """

    def __init__(self, tokenizer: str, lowercase: bool) -> None:
        super().__init__(lowercase=lowercase, tokenize=tokenizer, force=True)

    def _preprocess_segment(self, sent: str) -> str:
        return split_compounds(super()._preprocess_segment(sent))

    def get_signature(self) -> Any:
        """Says what was done to the text."""
        signature = super().get_signature()
        signature.update("compound", "split")
        return signature


def bleu(references: References) -> Metric | None:
    """Makes sacreBLEU; None for transcripts."""
    how = {"tokenize": _tokenizer(references), "lowercase": references.lowercase}
    return _make_metric(BLEU(force=True, **how), references)


def chrf(references: References) -> Metric | None:
    """Makes chrF2; None for transcripts."""
    return _make_metric(CHRF(lowercase=references.lowercase), references)


def paper_bleu(references: References) -> Metric | None:
    """Makes BLEU by the papers' protocol; None where none is named."""
    if references.protocol is None:
        return None
    check_known("protocol", references.protocol, get_args(Protocol), more=", or None")
    lowercase = references.lowercase or references.protocol == "iwslt14"
    return _make_metric(PaperBLEU(_tokenizer(references), lowercase), references)


def _tokenizer(references: References) -> str:
    return "none" if references.tokenised else "13a"


def _make_metric(metric: Any, references: References) -> Metric | None:
    """A metric of sacreBLEU, of counts that are kept a sentence."""
    if references.is_speech:
        return None

    def count(lines: Sequence[str]) -> Counts:
        found = metric._extract_corpus_statistics(list(lines), [list(references.lines)])
        return np.array(found, dtype=np.float64)

    return Metric(
        count,
        lambda total: float(metric._compute_score_from_stats(total).score),
        lambda: str(metric.get_signature()),
        most=100.0,
    )
