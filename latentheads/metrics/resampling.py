r"""Bootstrap resampling of sentences: confidence intervals, and paired tests of systems.

Koehn 2004, https://aclanthology.org/W04-3250. All systems share the same resamples, so that the
difficulty of a sentence cancels in a difference. Sentences count as independent: of several of one
text or speaker intervals are too narrow, and p too small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int
from sacrebleu.significance import estimate_ci

from latentheads.checks import check_as_many, check_least, check_not_empty, check_seed
from latentheads.console import show_progress
from latentheads.metrics.protocol import Protocol

MIN_RESAMPLES = 40

RESAMPLES, SEED = 1000, 12345
"""Default number of resamples, and their seed."""

Resampled = tuple[float, Float[np.ndarray, " resample"]]
"""A metric of all sentences, and that of every resample."""


Counts = Float[np.ndarray, "sentence count"]
"""The statistics of each sentence that a metric sums."""


@dataclass(frozen=True)
class Resamples:
    """The indices of the sentences of every resample, sampled with replacement.

    They are sampled anew, by the same seed, whenever they are iterated over: of many sentences all
    together need more memory than there is.

    Attributes:
        number: Number of sentences.
        resamples: Number of resamples.
        seed: Their seed.

    Raises:
        ValueError: There are too few or too many resamples, or the seed is out of range.
    """

    number: int
    resamples: int
    seed: int

    def __post_init__(self) -> None:
        check_resamples(self.resamples, self.seed)

    def __len__(self) -> int:
        return self.resamples

    def __iter__(self) -> Iterator[Int[np.ndarray, " sentence"]]:
        generator = np.random.default_rng(self.seed)
        return (generator.integers(self.number, size=self.number) for _ in range(self.resamples))


Combine = Callable[[Float[np.ndarray, " count"]], float]
"""Computes a metric from the summed counts."""


@dataclass(frozen=True)
class References:
    """The references of a corpus, and how outputs are compared with them.

    Attributes:
        lines: The reference of each sentence.
        tokenised: Whether lines are tokenised already, with spaces between tokens.
        lowercase: Whether case is ignored; the signatures record it.
        is_speech: Whether they are transcripts, scored with WER and CER.
        protocol: Adds ``paper_bleu`` by this protocol.
        accuracy: Adds ``accuracy`` and ``edit_distance``.
        paper_wer: Adds ``paper_wer``.
    """

    lines: Sequence[str]
    tokenised: bool = False
    lowercase: bool = False
    is_speech: bool = False
    protocol: Protocol | None = None
    accuracy: bool = False
    paper_wer: bool = False


@dataclass(frozen=True)
class Metric:
    """A corpus metric of output lines, computed from counts that are summed over sentences.

    Attributes:
        count: Returns the counts of each line, a row for every one.
        combine: Computes the metric from the summed counts.
        signature: Returns the signature; call ``count`` before.
        has_interval: Whether a report gives its bootstrap interval.
        counts: The names of the counts, if a report gives their sums, too.
        untested: Returns, from the summed counts of a system, a reason to test no difference of two
            systems that both have one; empty: it has none. None: all are tested.
    """

    count: Callable[[Sequence[str]], Counts]
    combine: Combine
    signature: Callable[[], str]
    has_interval: bool = False
    counts: tuple[str, ...] = ()
    untested: Callable[[Float[np.ndarray, " count"]], str] | None = None

    def count_lines(self, lines: Sequence[str]) -> Counts:
        """Counts of each line."""
        counts = np.asarray(self.count(lines), np.float64)
        if counts.ndim != 2 or len(counts) != len(lines):
            raise ValueError(
                f"its counts must be a row for each of {len(lines)} lines, got shape {counts.shape}"
            )
        return counts

    def measure(self, lines: Sequence[str]) -> float:
        """Computes the metric of all lines."""
        return float(self.combine(self.count_lines(lines).sum(0)))


def resample_counts(counts: Counts, combine: Combine, indices: Resamples) -> Resampled:
    """Computes a metric of all sentences and of every resample; NaN for a single sentence."""
    whole = float(combine(counts.sum(0)))
    if len(counts) == 1:
        return whole, np.full(len(indices), np.nan)
    shown = show_progress(indices, "resampling", "resample")
    return whole, np.array([combine(counts[resample].sum(0)) for resample in shown])


@dataclass(frozen=True)
class Estimate:
    """A score of one system with its bootstrap interval and p-value.

    For a single sentence all but the score is NaN, and there is no p-value. Where all resamples are
    at an end of the scale, as 0 errors, the interval is NaN: it would be a point.

    Attributes:
        score: The score of the whole corpus.
        mean: Its mean over the resamples.
        half_width: Half the width of the 95 % interval around ``mean``.
        low: Lower end of that interval, clipped to the range of the score.
        high: Upper end.
        p: Two-sided p-value of the difference to the baseline; None for the baseline itself, and
            where a score is NaN in a resample or a difference is not tested.
        signature: How the score was computed, with the number of resamples and their seed.
        untested: Why a difference to the baseline is not tested; empty if it is, or there is none.
    """

    score: float
    mean: float
    half_width: float
    low: float
    high: float
    p: float | None
    signature: str
    untested: str = ""


def check_lines(outputs: Sequence[str], references: Sequence[str]) -> None:
    """Checks that references are not all empty, and that there is one line for each."""
    check_not_empty("references", references)
    if not any(line.strip() for line in references):
        raise ValueError(f"all {len(references)} references are empty: there is nothing to score")
    check_as_many("translations", outputs, "references", references)


def check_resamples(resamples: int, seed: int) -> None:
    """Checks that there are enough resamples for an interval, and that the seed can be one."""
    check_least({"resamples": resamples}, resamples=MIN_RESAMPLES)
    check_seed(seed)


def estimate_systems(
    scores: Sequence[Resampled],
    signature: str,
    minimum: float = -math.inf,
    maximum: float = math.inf,
) -> list[Estimate]:
    r"""Estimates one score for all systems, the first of them the baseline.

    With the difference d to the baseline on all sentences and d_b on resample b, the p-value is

    .. math:: p = \frac{1 + \#\{b : |d_b - \bar d| \ge |d|\}}{B + 1}

    which is two-sided. sacreBLEU's own paired bootstrap takes ``|d_b|`` before the mean is
    subtracted, so that its p-value is about half as large.
    """
    (baseline, resampled_baseline), *_ = scores
    estimates = []
    for score, resampled in scores:
        differences = resampled - resampled_baseline
        extreme = np.abs(differences - differences.mean()) >= abs(score - baseline)
        finite = np.isfinite(differences).all() and np.isfinite(score - baseline)
        p = (1 + int(extreme.sum())) / (len(resampled) + 1) if finite else None
        mean, half_width = map(float, estimate_ci(resampled))
        if np.isclose(resampled, minimum).all() or np.isclose(resampled, maximum).all():
            half_width = math.nan  # no sentence differs, yet others may
        # np.clip keeps NaN, where max and min would return the bounds
        low, high = np.clip([mean - half_width, mean + half_width], minimum, maximum).tolist()
        estimates.append(Estimate(score, mean, half_width, low, high, p, signature))
    estimates[0] = replace(estimates[0], p=None)
    return estimates
