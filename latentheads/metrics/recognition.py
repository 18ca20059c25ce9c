r"""How well speech is recognised: error rates of words and of characters, over a whole part.

.. math:: \mathrm{WER} = \frac{S + D + I}{N}

of substitutions, deletions and insertions over the words of all references together: a mean over
utterances would count short ones too much. It may exceed 100 %. Two figures both called WER are
kept apart by name, as BLEU's are:

* ``wer`` is of words between spaces, in composed characters (NFC);
* ``paper_wer`` is what the papers on mTEDx print, on request only: of 13a tokens without case,
  those that are punctuation alone left out. It is never comparable with the first.
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

from latentheads.checks import check_word
from latentheads.metrics.resampling import (
    RESAMPLES,
    SEED,
    Counts,
    Estimate,
    Metric,
    compare_lines,
)
from latentheads.packages import need_package

if TYPE_CHECKING:
    from jiwer import AlignmentChunk

__all__ = [
    "Errors",
    "Recognition",
    "compare_errors",
    "count_errors",
    "make_plain",
    "recognise",
]

Unit = Literal["words", "characters"]
ErrorCounts = Int[np.ndarray, "utterance 4"]
"""Substitutions, deletions, insertions and reference units of every utterance."""


@dataclass(frozen=True)
class Recognition:
    """How well one system recognises speech; rates in percent.

    Attributes:
        wer: Word error rate.
        wer_low: Lower end of its 95 % interval over resampled utterances.
        wer_high: Upper end.
        substitutions: Words that are another one.
        deletions: Words that are missing.
        insertions: Words that nobody said.
        words: Words of the references.
        wer_signature: How it was computed.
        cer: Character error rate, spaces among the characters.
        cer_low: As for words.
        cer_high: The same.
        cer_signature: The same.
        paper_wer: WER by the papers' protocol; None where it was not asked for.
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
    """One system beside the baseline.

    Attributes:
        wer: Word error rate.
        cer: Character error rate.
        paper_wer: WER by the papers' protocol; None where it was not asked for.
    """

    wer: Estimate
    cer: Estimate
    paper_wer: Estimate | None = None


def recognise(
    written: Sequence[str],
    references: Sequence[str],
    lowercase: bool = False,
    paper: bool = False,
) -> Recognition:
    """Scores one system.

    Args:
        written: What it writes of each utterance.
        references: What was said.
        lowercase: Whether case counts for nothing; the signatures say so.
        paper: Whether to add ``paper_wer``.
    """
    (found,) = compare_errors(written, [], references, lowercase, paper)
    words = count_errors(*_prepare_all(written, references, make_plain(lowercase)), "words").sum(0)
    substitutions, deletions, insertions, number = words.tolist()
    return Recognition(
        found.wer.score,
        found.wer.low,
        found.wer.high,
        substitutions,
        deletions,
        insertions,
        number,
        found.wer.signature,
        found.cer.score,
        found.cer.low,
        found.cer.high,
        found.cer.signature,
        None if found.paper_wer is None else found.paper_wer.score,
        None if found.paper_wer is None else found.paper_wer.signature,
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
    """Compares systems with a baseline on resampled utterances, the same ones for all systems.

    Args:
        baseline: What the system writes that the others are compared with.
        others: What each other system writes.
        references: What was said.
        lowercase: Whether case counts for nothing.
        paper: Whether to add ``paper_wer``.
        resamples: How often the utterances are resampled.
        seed: Of the resamples.

    Returns:
        The baseline, then the others in their order.
    """
    plain, case = make_plain(lowercase), "lc" if lowercase else "mixed"
    of_words = partial(_make_metric, references, "words")
    metrics = {
        "wer": of_words(plain, f"case:{case}|tok:space|norm:nfc"),
        "cer": _make_metric(references, "characters", plain, f"case:{case}|tok:character|norm:nfc"),
    }
    if paper:
        metrics["paper_wer"] = of_words(_as_papers, "case:lc|tok:13a|punct:no|norm:none")
    rows = compare_lines([baseline, *others], references, metrics, resamples, seed)
    return [Errors(**row) for row in rows]


def count_errors(written: Sequence[str], references: Sequence[str], unit: Unit) -> ErrorCounts:
    """The errors of every utterance, by the alignment of fewest.

    Args:
        written: What a system writes of each utterance.
        references: What was said.
        unit: What is counted: words between spaces, or characters.
    """
    check_word("unit", unit, get_args(Unit))
    package = need_package("jiwer")
    align = package.process_words if unit == "words" else package.process_characters
    found = align(list(references), list(written))
    lengths = [len(each) for each in found.references]
    return np.array(
        [
            [*_count_chunks(chunks), length]
            for chunks, length in zip(found.alignments, lengths, strict=True)
        ],
        np.int64,
    )


def _count_chunks(chunks: Sequence[AlignmentChunk]) -> list[int]:
    """Substitutions, deletions and insertions of an utterance."""
    found = dict.fromkeys(("substitute", "delete", "insert", "equal"), 0)
    for each in chunks:
        said, heard = each.ref_end_idx - each.ref_start_idx, each.hyp_end_idx - each.hyp_start_idx
        found[each.type] += max(said, heard)
    return [found[name] for name in ("substitute", "delete", "insert")]


def _make_metric(
    references: Sequence[str], unit: Unit, prepare: Callable[[str], str], said: str
) -> Metric:
    """The rate of errors of lines that are prepared first."""

    def count(lines: Sequence[str]) -> Counts:
        return count_errors(*_prepare_all(lines, references, prepare), unit).astype(np.float64)

    return Metric(count, _rate, partial(_sign, said))


def _rate(total: Float[np.ndarray, " 4"]) -> float:
    """Errors for a hundred units; a resample of empty references alone counts as one unit."""
    return float(100 * total[:3].sum() / max(int(total[3]), 1))


def _prepare_all(
    written: Sequence[str], references: Sequence[str], prepare: Callable[[str], str]
) -> tuple[list[str], list[str]]:
    return [prepare(line) for line in written], [prepare(line) for line in references]


def make_plain(lowercase: bool) -> Callable[[str], str]:
    """Makes what writes a line in composed characters, one space between words.

    Args:
        lowercase: Whether it lower-cases the line too.
    """

    def prepare(line: str) -> str:
        composed = unicodedata.normalize("NFC", line)
        return " ".join((composed.lower() if lowercase else composed).split())

    return prepare


def _as_papers(line: str) -> str:
    """13a tokens in lower case, those left out that are punctuation alone."""
    tokens = Tokenizer13a()(line).split()
    return " ".join(token for token in tokens if not _is_punctuation(token)).lower()


def _is_punctuation(token: str) -> bool:
    return all(unicodedata.category(each).startswith("P") for each in token)


def _sign(said: str) -> str:
    return f"jiwer:{version('jiwer')}|{said}"
