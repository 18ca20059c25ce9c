r"""Resampling of sentences: intervals of a figure, and tests of systems in pairs.

Koehn 2004, https://aclanthology.org/W04-3250. The same resampled sentences are taken for all
systems, so that what is hard in a sentence falls out of a difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int
from sacrebleu.significance import estimate_ci

from latentheads.metrics.protocol import Protocol

__all__ = [
    "FEWEST_RESAMPLES",
    "RESAMPLES",
    "SEED",
    "Counts",
    "Estimate",
    "Metric",
    "References",
    "Resampled",
    "Resamples",
    "check_lines",
    "check_resamples",
    "compare_lines",
    "draw_places",
    "estimate_systems",
    "resample_counts",
]

FEWEST_RESAMPLES = 40

RESAMPLES, SEED = 1000, 12345
"""The defaults of a test."""

Resamples = Int[np.ndarray, "resample sentence"]
"""The places of the sentences of every resample."""

Resampled = tuple[float, Float[np.ndarray, " resample"]]
"""A figure of all sentences, and that of every resample."""


Counts = Float[np.ndarray, "sentence count"]
"""The counts of each sentence."""

Combine = Callable[[Float[np.ndarray, " count"]], float]
"""Makes a figure of the sums of counts."""


@dataclass(frozen=True)
class References:
    """What counts as right, and how lines are compared with it.

    Attributes:
        lines: One for each sentence.
        tokenised: Whether lines are tokenised already, tokens with spaces between.
        lowercase: Whether case counts for nothing; the signatures say so.
        is_speech: Whether they are transcripts, scored with WER and CER.
        protocol: Adds ``paper_bleu``, as the papers on this data set count it.
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
    """A figure of what systems write: one of counts, summed over sentences.

    Attributes:
        count: Gives the counts in each line of a system.
        combine: Makes the figure of the sums of counts.
        sign: Gives the signature, once something was counted.
        most: The largest value of the figure; the least is 0.
        has_interval: Whether a report gives its interval, which takes resampling.
        counts: Names of the counts, where a report gives their sums, too.
    """

    count: Callable[[Sequence[str]], Counts]
    combine: Combine
    sign: Callable[[], str]
    most: float = math.inf
    has_interval: bool = False
    counts: tuple[str, ...] = ()

    def measure(self, lines: Sequence[str]) -> float:
        """The figure of all lines."""
        return self.combine(self.count(lines).sum(0))

    def resample(self, lines: Sequence[str], places: Resamples) -> Resampled:
        """The figure of all lines, and that of every resample; NaN where there is one line."""
        return resample_counts(self.count(lines), self.combine, places)


def resample_counts(counts: Counts, combine: Combine, places: Resamples) -> Resampled:
    """A figure of all sentences, and that of every resample; NaN where there is one sentence.

    Args:
        counts: Those of each sentence.
        combine: Makes the figure of their sums.
        places: The resamples.
    """
    whole = combine(counts.sum(0))
    if len(counts) == 1:
        return whole, np.full(len(places), np.nan)
    return whole, np.array([combine(counts[some].sum(0)) for some in places])


@dataclass(frozen=True)
class Estimate:
    """A score of one system and what resampling the sentences says about it.

    Of a single sentence it says nothing: all but the score is NaN, and there is no p.

    Attributes:
        score: Of the whole corpus.
        mean: Over the resamples.
        half_width: Of the 95 % interval around ``mean``.
        low: Lower end of that interval, within what the score can be.
        high: Upper end.
        p: Of no difference to the baseline, both sides; None for the baseline itself, and where
            one of the two is unknown in a resample.
        signature: How the score was computed, with the number of resamples and their seed.
    """

    score: float
    mean: float
    half_width: float
    low: float
    high: float
    p: float | None
    signature: str


def compare_lines(
    systems: Sequence[Sequence[str]],
    references: Sequence[str],
    metrics: Mapping[str, Metric],
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> list[dict[str, Estimate]]:
    """Compares systems with the first of them on resampled sentences, the same ones for all.

    Args:
        systems: What each writes, a line a sentence.
        references: What counts as right.
        metrics: The figures, by their names.
        resamples: How often the sentences are resampled; the least p is 1 / (resamples + 1).
        seed: Of the resamples.

    Returns:
        For every system its figures, by their names.

    Raises:
        ValueError: There is nothing to score, or not one line each.
    """
    for lines in systems:
        check_lines(lines, references)
    places = draw_places(len(references), resamples, seed)
    found: list[dict[str, Estimate]] = [{} for _ in systems]
    for name, metric in metrics.items():
        every = [metric.resample(lines, places) for lines in systems]
        said = f"{metric.sign()}|bs:{resamples}|seed:{seed}|p:two-sided"
        estimates = estimate_systems(every, said, 0.0, metric.most)
        for row, estimate in zip(found, estimates, strict=True):
            row[name] = estimate
    return found


def check_lines(written: Sequence[str], references: Sequence[str]) -> None:
    """Refuses texts that have nothing to score, or not one line each."""
    if not references:
        raise ValueError("there are no references: one line or more is needed")
    if not any(line.strip() for line in references):
        raise ValueError(f"all {len(references)} references are empty: there is nothing to score")
    if len(written) != len(references):
        raise ValueError(
            f"{len(written)} translations of {len(references)} references: one line each is needed"
        )


def draw_places(number: int, resamples: int, seed: int) -> Resamples:
    """Draws resamples: for each, the places of as many sentences as there are.

    Args:
        number: Sentences.
        resamples: How often they are resampled.
        seed: Of the draws.

    Raises:
        ValueError: There are too few resamples for an interval, or the seed is negative.
    """
    check_resamples(resamples, seed)
    return np.random.default_rng(seed).choice(number, (resamples, number))


def check_resamples(resamples: int, seed: int) -> None:
    """Refuses resamples that are too few for an interval, and a negative seed."""
    if resamples < FEWEST_RESAMPLES:
        raise ValueError(f"resamples must be at least {FEWEST_RESAMPLES}, got {resamples}")
    if seed < 0:
        raise ValueError(f"seed must be at least 0, got {seed}")


def estimate_systems(
    every: Sequence[Resampled], signature: str, least: float = -math.inf, most: float = math.inf
) -> list[Estimate]:
    r"""One score of all systems, the first of them the baseline.

    With the difference d to the baseline on all sentences and d_b on resample b, the test counts

    .. math:: p = \frac{1 + \#\{b : |d_b - \bar d| \ge |d|\}}{B + 1}

    which looks at both sides. sacreBLEU's own paired bootstrap takes ``|d_b|`` before the mean is
    subtracted, so that its p is about half as large.

    Args:
        every: The score of every system, on all sentences and on the same resamples.
        signature: How it was computed.
        least: No score is below it.
        most: Nor above it.
    """
    (first, baseline), *_ = every
    estimates = []
    for score, resampled in every:
        differences = resampled - baseline
        away = np.abs(differences - differences.mean()) >= abs(score - first)
        known = np.isfinite(differences).all() and np.isfinite(score - first)
        p = (1 + int(away.sum())) / (len(resampled) + 1) if known else None
        mean, half = map(float, estimate_ci(resampled))
        # unknown ends stay so, where max and min would give the bounds
        low, high = np.clip([mean - half, mean + half], least, most).tolist()
        estimates.append(Estimate(score, mean, half, low, high, p, signature))
    estimates[0] = replace(estimates[0], p=None)
    return estimates
