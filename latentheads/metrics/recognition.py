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
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
from jaxtyping import Float, Int
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from latentheads.checks import check_word
from latentheads.metrics.resampling import Counts, Metric, References
from latentheads.packages import need_package

if TYPE_CHECKING:
    from jiwer import AlignmentChunk

__all__ = ["cer", "count_errors", "make_plain", "paper_wer", "wer"]

Unit = Literal["words", "characters"]
ErrorCounts = Int[np.ndarray, "utterance 4"]
"""Substitutions, deletions, insertions and reference units of every utterance."""


KINDS = ("substitutions", "deletions", "insertions", "words")
"""The counts behind the error rate of words."""


def wer(references: References) -> Metric | None:
    """Makes the word error rate; None for translations."""
    plain, said = make_plain(references.lowercase), f"{_case(references)}|tok:space|norm:nfc"
    return _make_metric(references, "words", plain, said, KINDS)


def cer(references: References) -> Metric | None:
    """Makes the character error rate, spaces among the characters; None for translations."""
    plain, said = make_plain(references.lowercase), f"{_case(references)}|tok:character|norm:nfc"
    return _make_metric(references, "characters", plain, said)


def paper_wer(references: References) -> Metric | None:
    """Makes WER by the papers' protocol; None where it is not asked for."""
    if not references.paper_wer:
        return None
    said = "case:lc|tok:13a|punct:no|norm:none"
    return _make_metric(references, "words", _as_papers, said)


def _case(references: References) -> str:
    return f"case:{'lc' if references.lowercase else 'mixed'}"


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
    references: References,
    unit: Unit,
    prepare: Callable[[str], str],
    said: str,
    counts: tuple[str, ...] = (),
) -> Metric | None:
    """The rate of errors of lines that are prepared first."""
    if not references.is_speech:
        return None

    def count(lines: Sequence[str]) -> Counts:
        both = _prepare_all(lines, references.lines, prepare)
        return count_errors(*both, unit).astype(np.float64)

    return Metric(count, _rate, partial(_sign, said), has_interval=True, counts=counts)


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
