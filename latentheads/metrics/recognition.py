r"""Speech recognition: word and character error rates of a corpus.

.. math:: \mathrm{WER} = \frac{S + D + I}{N}

with the substitutions, deletions, insertions and reference words summed over the corpus: a mean
over utterances would weigh short ones too much. It may exceed 100 %. There are two kinds of WER:

* ``wer`` is of whitespace-separated words in composed characters (NFC);
* ``paper_wer`` is the WER of the papers on mTEDx, computed on request: of lower-cased 13a tokens
  without punctuation. The two are not comparable.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from jaxtyping import Float, Int
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from latentheads.checks import check_choice
from latentheads.metrics.resampling import (
    RESAMPLES,
    SEED,
    Counts,
    Estimate,
    Metric,
    compare_lines,
)
from latentheads.packages import import_optional

if TYPE_CHECKING:
    from jiwer import AlignmentChunk

__all__ = [
    "Errors",
    "Recognition",
    "compare_errors",
    "count_errors",
    "make_normaliser",
    "recognise",
]

Unit = Literal["words", "characters"]
ErrorCounts = Int[np.ndarray, "utterance 4"]
"""Substitutions, deletions, insertions and reference units of every utterance."""


@dataclass(frozen=True)
class Recognition:
    """The error rates of one system, in percent.

    Attributes:
        wer: Word error rate.
        wer_low: Lower end of its 95 % bootstrap interval over utterances.
        wer_high: Upper end of the interval.
        substitutions: Substituted words.
        deletions: Deleted words.
        insertions: Inserted words.
        words: Words of the references.
        wer_signature: How it was computed.
        cer: Character error rate; spaces count as characters.
        cer_low: Lower end of its interval.
        cer_high: Upper end of its interval.
        cer_signature: How it was computed.
        paper_wer: WER by the papers' protocol; None if not requested.
        paper_wer_signature: How it was computed.
    """

    wer: float
    wer_low: float
    wer_high: float
    substitutions: int
    deletions: int
    insertions: int
    words: int
    wer_signature: str
    cer: float
    cer_low: float
    cer_high: float
    cer_signature: str
    paper_wer: float | None = None
    paper_wer_signature: str | None = None


@dataclass(frozen=True)
class Errors:
    """The error rates of one system, compared with the baseline.

    Attributes:
        wer: Word error rate.
        cer: Character error rate.
        paper_wer: WER by the papers' protocol; None if not requested.
    """

    wer: Estimate
    cer: Estimate
    paper_wer: Estimate | None = None


def recognise(
    transcripts: Sequence[str],
    references: Sequence[str],
    lowercase: bool = False,
    paper: bool = False,
) -> Recognition:
    """Computes the error rates of one system.

    Args:
        transcripts: The transcript of each utterance.
        references: The reference transcripts.
        lowercase: Whether case is ignored; the signatures record it.
        paper: Whether to add ``paper_wer``.
    """
    (errors,) = compare_errors(transcripts, [], references, lowercase, paper)
    counts = count_errors(
        *_normalise_all(transcripts, references, make_normaliser(lowercase)), "words"
    ).sum(0)
    substitutions, deletions, insertions, words = counts.tolist()
    return Recognition(
        errors.wer.score,
        errors.wer.low,
        errors.wer.high,
        substitutions,
        deletions,
        insertions,
        words,
        errors.wer.signature,
        errors.cer.score,
        errors.cer.low,
        errors.cer.high,
        errors.cer.signature,
        None if errors.paper_wer is None else errors.paper_wer.score,
        None if errors.paper_wer is None else errors.paper_wer.signature,
    )


def compare_errors(
    baseline: Sequence[str],
    others: Sequence[Sequence[str]],
    references: Sequence[str],
    lowercase: bool = False,
    paper: bool = False,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> list[Errors]:
    """Compares systems with a baseline by paired bootstrap over utterances.

    Args:
        baseline: The transcripts of the baseline.
        others: The transcripts of each other system.
        references: The reference transcripts.
        lowercase: Whether case is ignored.
        paper: Whether to add ``paper_wer``.
        resamples: Number of resamples.
        seed: Seed of the resampling.

    Returns:
        The baseline, then the others in order.
    """
    normalise, case = make_normaliser(lowercase), "lc" if lowercase else "mixed"
    make_word_metric = partial(_make_metric, references, "words")
    metrics = {
        "wer": make_word_metric(normalise, f"case:{case}|tok:space|norm:nfc"),
        "cer": _make_metric(
            references, "characters", normalise, f"case:{case}|tok:character|norm:nfc"
        ),
    }
    if paper:
        metrics["paper_wer"] = make_word_metric(
            _normalise_as_papers, "case:lc|tok:13a|punct:no|norm:none"
        )
    rows = compare_lines([baseline, *others], references, metrics, resamples, seed)
    return [Errors(**row) for row in rows]


def count_errors(transcripts: Sequence[str], references: Sequence[str], unit: Unit) -> ErrorCounts:
    """Counts the errors of every utterance in its minimum edit distance alignment.

    Args:
        transcripts: The transcript of each utterance.
        references: The reference transcripts.
        unit: Whether to count words or characters.
    """
    check_choice("unit", unit, get_args(Unit))
    package = import_optional("jiwer")
    align = package.process_words if unit == "words" else package.process_characters
    alignments = align(list(references), list(transcripts))
    lengths = [len(reference) for reference in alignments.references]
    return np.array(
        [
            [*_count_chunks(chunks), length]
            for chunks, length in zip(alignments.alignments, lengths, strict=True)
        ],
        np.int64,
    )


def _count_chunks(chunks: Sequence[AlignmentChunk]) -> list[int]:
    """Counts the substitutions, deletions and insertions of an utterance."""
    counts = dict.fromkeys(("substitute", "delete", "insert", "equal"), 0)
    for chunk in chunks:
        in_reference = chunk.ref_end_idx - chunk.ref_start_idx
        in_hypothesis = chunk.hyp_end_idx - chunk.hyp_start_idx
        counts[chunk.type] += max(in_reference, in_hypothesis)
    return [counts[name] for name in ("substitute", "delete", "insert")]


def _make_metric(
    references: Sequence[str], unit: Unit, normalise: Callable[[str], str], details: str
) -> Metric:
    """Makes the error rate of lines that are normalised first."""

    def count(lines: Sequence[str]) -> Counts:
        return count_errors(*_normalise_all(lines, references, normalise), unit).astype(np.float64)

    return Metric(count, _rate, partial(_make_signature, details))


def _rate(total: Float[np.ndarray, " 4"]) -> float:
    """Errors per 100 units; a resample of empty references counts as one unit."""
    return float(100 * total[:3].sum() / max(int(total[3]), 1))


def _normalise_all(
    transcripts: Sequence[str], references: Sequence[str], normalise: Callable[[str], str]
) -> tuple[list[str], list[str]]:
    return [normalise(line) for line in transcripts], [normalise(line) for line in references]


def make_normaliser(lowercase: bool) -> Callable[[str], str]:
    """Makes a function that normalises a line: NFC, one space between words.

    Args:
        lowercase: Whether it lower-cases the line too.
    """

    def normalise(line: str) -> str:
        composed = unicodedata.normalize("NFC", line)
        return " ".join((composed.lower() if lowercase else composed).split())

    return normalise


def _normalise_as_papers(line: str) -> str:
    """Lower-cased 13a tokens, without those of punctuation alone."""
    tokens = Tokenizer13a()(line).split()
    return " ".join(token for token in tokens if not _is_punctuation(token)).lower()


def _is_punctuation(token: str) -> bool:
    return all(unicodedata.category(character).startswith("P") for character in token)


def _make_signature(details: str) -> str:
    return f"jiwer:{version('jiwer')}|{details}"
