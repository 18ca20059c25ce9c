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
from importlib.metadata import version
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from jaxtyping import Float, Int
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from latentheads.checks import check_choice
from latentheads.metrics.resampling import Counts, Metric, References
from latentheads.packages import import_optional

if TYPE_CHECKING:
    from jiwer import AlignmentChunk

Unit = Literal["words", "characters"]
ErrorCounts = Int[np.ndarray, "utterance 4"]
"""Substitutions, deletions, insertions and reference units of every utterance."""


WORD_COUNTS = ("substitutions", "deletions", "insertions", "words")
"""The counts that the word error rate is computed from."""


def wer(references: References) -> Metric | None:
    """Makes the word error rate; None for translations."""
    details = f"{name_case(references)}|tok:space|norm:nfc"
    normalise = make_normaliser(references.lowercase)
    return _make_metric(references, "words", normalise, details, WORD_COUNTS)


def cer(references: References) -> Metric | None:
    """Makes the character error rate, where spaces count as characters; None for translations."""
    details = f"{name_case(references)}|tok:character|norm:nfc"
    return _make_metric(references, "characters", make_normaliser(references.lowercase), details)


def paper_wer(references: References) -> Metric | None:
    """Makes the WER by the papers' protocol; None if not requested."""
    if not references.paper_wer:
        return None
    details = "case:lc|tok:13a|punct:no|norm:none"
    return _make_metric(references, "words", _normalise_as_papers, details)


def name_case(references: References) -> str:
    """The part of a signature that states whether case counts."""
    return f"case:{'lc' if references.lowercase else 'mixed'}"


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
    references: References,
    unit: Unit,
    normalise: Callable[[str], str],
    details: str,
    counts: tuple[str, ...] = (),
) -> Metric | None:
    """Makes the error rate of lines that are normalised first."""
    if not references.is_speech:
        return None

    def count(lines: Sequence[str]) -> Counts:
        transcripts, texts = ([*map(normalise, side)] for side in (lines, references.lines))
        return count_errors(transcripts, texts, unit).astype(np.float64)

    def signature() -> str:
        return f"jiwer:{version('jiwer')}|{details}"

    return Metric(count, _rate, signature, has_interval=True, counts=counts)


def _rate(total: Float[np.ndarray, " 4"]) -> float:
    """Errors per 100 units; a resample of empty references counts as one unit."""
    return float(100 * total[:3].sum() / max(int(total[3]), 1))


def make_normaliser(lowercase: bool) -> Callable[[str], str]:
    """Makes a function that normalises a line: NFC, one space between words."""

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
