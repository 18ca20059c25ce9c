"""How good translations are: BLEU and chrF with their signatures, paired tests between systems.

Two figures both called BLEU are kept apart by name:

* ``bleu`` is sacreBLEU's on raw text (``tok:13a``), comparable between papers; of a corpus whose
  lines are its tokens, ``tok:none``;
* ``paper_bleu`` is what the papers on IWSLT and WMT print, on request only: tokens lower-cased, and
  compounds split on both sides as in fairseq's ``compound_split_bleu.sh``. It is never comparable
  with the first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

__all__ = [
    "Comparison",
    "Estimate",
    "Protocol",
    "Scores",
    "paired_bootstrap",
    "score",
    "split_compounds",
]

Protocol = Literal["paper"]

FEWEST_SAMPLES = 40
COMPOUND = re.compile(rb"(\S)-(\S)")


def split_compounds(line: str) -> str:
    """Cuts words at their hyphens, exactly as fairseq's Perl does: byte by byte, left to right.

    ``well-known`` becomes ``well ##AT##-##AT## known``. A cut uses up the byte on each side of its
    hyphen, hence ``a-b-c`` becomes ``a ##AT##-##AT## b-c``.
    """
    return COMPOUND.sub(rb"\1 ##AT##-##AT## \2", line.encode()).decode()


class PaperBLEU(BLEU):
    """BLEU on lower-cased tokens with compounds split.

    Args:
        tokenised: Whether the lines are tokenised already; 13a does it otherwise.
    """

    def __init__(self, tokenised: bool) -> None:
        super().__init__(lowercase=True, tokenize=_tokenizer(tokenised), force=True)

    def _preprocess_segment(self, sent: str) -> str:
        return split_compounds(super()._preprocess_segment(sent))

    def get_signature(self) -> Any:
        """Says what was done to the text."""
        signature = super().get_signature()
        signature.update("compound", "split")
        return signature


@dataclass(frozen=True)
class Scores:
    """How good the translations of one system are, 0 to 100.

    Attributes:
        bleu: sacreBLEU.
        bleu_signature: How it was computed.
        chrf: chrF2.
        chrf_signature: How it was computed.
        paper_bleu: BLEU by the papers' protocol; None where it was not asked for.
        paper_signature: How it was computed.
    """

    bleu: float
    bleu_signature: str
    chrf: float
    chrf_signature: str
    paper_bleu: float | None = None
    paper_signature: str | None = None


@dataclass(frozen=True)
class Estimate:
    """A score of one system and what resampling the sentences says about it.

    Attributes:
        score: Of the whole corpus.
        mean: Over the resamples.
        half_width: Of the 95 % interval around ``mean``.
        p: Of no difference to the baseline, both sides; None for the baseline itself.
        signature: How the score was computed, with the number of resamples and their seed.
    """

    score: float
    mean: float
    half_width: float
    p: float | None
    signature: str

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval."""
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        """Upper end of the 95 % interval."""
        return self.mean + self.half_width


@dataclass(frozen=True)
class Comparison:
    """One system beside the baseline.

    Attributes:
        bleu: sacreBLEU.
        chrf: chrF2.
        paper_bleu: BLEU by the papers' protocol; None where it was not asked for.
    """

    bleu: Estimate
    chrf: Estimate
    paper_bleu: Estimate | None = None


def score(
    translations: Sequence[str],
    references: Sequence[str],
    tokenised: bool = False,
    protocol: Protocol | None = None,
    lowercase: bool = False,
) -> Scores:
    """Scores the translations of one system.

    Args:
        translations: One sentence each.
        references: The translation of each sentence that counts as right.
        tokenised: Whether the lines are tokenised already, words with spaces between.
        protocol: ``paper`` adds ``paper_bleu``.
        lowercase: Whether case counts for nothing; the signatures say so.
    """
    _check_lines(translations, references)
    found: dict[str, tuple[float, str]] = {}
    for name, metric in _metrics(tokenised, protocol, lowercase).items():
        value = metric.corpus_score(list(translations), [list(references)]).score
        found[name] = float(value), str(metric.get_signature())
    return Scores(*found["bleu"], *found["chrf"], *found.get("paper_bleu", ()))


def paired_bootstrap(
    baseline: Sequence[str],
    others: Sequence[Sequence[str]],
    references: Sequence[str],
    tokenised: bool = False,
    protocol: Protocol | None = None,
    samples: int = 1000,
    seed: int = 12345,
    lowercase: bool = False,
) -> list[Comparison]:
    """Compares systems with a baseline on resampled sentences, the same ones for all systems.

    The test is sacreBLEU's paired bootstrap, with one difference: a system whose score is the
    baseline's has p = 1. sacreBLEU gives a system against itself the least p there is.

    Args:
        baseline: Translations of the system that the others are compared with.
        others: Translations of each other system.
        references: The translation of each sentence that counts as right.
        tokenised: Whether the lines are tokenised already, words with spaces between.
        protocol: ``paper`` adds ``paper_bleu``.
        samples: How often the corpus is resampled; the least p is 1 / (samples + 1).
        seed: Of the resamples.
        lowercase: Whether case counts for nothing.

    Returns:
        The baseline, then the others in their order.
    """
    if samples < FEWEST_SAMPLES:
        raise ValueError(f"samples must be at least {FEWEST_SAMPLES}, got {samples}")
    if seed < 1:
        raise ValueError(f"seed must be at least 1 (sacreBLEU takes 0 for none), got {seed}")
    systems = [baseline, *others]
    for lines in systems:
        _check_lines(lines, references)
    columns = {
        name: _estimates(metric, systems, references, samples, seed)
        for name, metric in _metrics(tokenised, protocol, lowercase).items()
    }
    return [Comparison(*row) for row in zip(*columns.values(), strict=True)]


def _tokenizer(tokenised: bool) -> str:
    return "none" if tokenised else "13a"


def _metrics(tokenised: bool, protocol: Protocol | None, lowercase: bool) -> dict[str, Any]:
    if protocol not in (None, "paper"):
        raise ValueError(f"unknown protocol {protocol!r}: choose paper or None")
    bleu = BLEU(tokenize=_tokenizer(tokenised), force=True, lowercase=lowercase)
    metrics = {"bleu": bleu, "chrf": CHRF(lowercase=lowercase)}
    return metrics if protocol is None else {**metrics, "paper_bleu": PaperBLEU(tokenised)}


def _check_lines(translations: Sequence[str], references: Sequence[str]) -> None:
    if not references:
        raise ValueError("there are no references: one line or more is needed")
    if len(translations) != len(references):
        raise ValueError(
            f"{len(translations)} translations of {len(references)} references: "
            "one line each is needed"
        )


def _estimates(
    metric: Any,
    systems: Sequence[Sequence[str]],
    references: Sequence[str],
    samples: int,
    seed: int,
) -> list[Estimate]:
    """One score of all systems, the first of them the baseline."""
    named = [(str(place), list(lines)) for place, lines in enumerate(systems)]
    with _sacrebleu_seed(seed):
        test = PairedTest(
            named, {"": metric}, [list(references)], test_type="bs", n_samples=samples, n_jobs=1
        )
    signatures, results = test()
    ((name, signature),) = signatures.items()
    base, *rest = results[name]
    return [
        _estimate(base, None, signature),
        *(_estimate(it, 1.0 if it.score == base.score else it.p_value, signature) for it in rest),
    ]


def _estimate(result: Any, p: float | None, signature: Any) -> Estimate:
    return Estimate(
        float(result.score), float(result.mean), float(result.ci), p, signature.format()
    )


@contextmanager
def _sacrebleu_seed(seed: int) -> Iterator[None]:
    """Hands sacreBLEU its seed in the only way it takes one."""
    before = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = before
