"""How far the times of words are from the truth, with intervals over sounds.

Words of one sound are alike, so that a share of all words is known less well than by as many
independent ones. Its interval is Wilson's with the effective number of words, that of independent
words which would vary as much between sounds, and the quantile of Student's t (Dean and Pagano
2015, https://doi.org/10.1093/jssam/smv024). In a simulation of 5 to 40 sounds with shares of 50 to
97 per cent it holds the truth in 94 to 99 per cent of 2,000 cases; percentiles of resamples do in
64 to 94 (``experiments/results/word-times``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from latentheads.checks import check_as_many, check_choice, check_not_empty
from latentheads.contrib.speech.word_times import WordTime
from latentheads.errors import naming

LIMITS = (0.02, 0.05, 0.1, 0.2)
"""Seconds within which a boundary counts as right."""


@dataclass
class TimeErrors:
    """Errors of a kind of boundary, an array for each sound; known boundaries alone.

    Attributes:
        seconds: Predicted less true times.
        covered: Whether the interval holds the true time; empty where there is none.
        widths: Seconds of each interval.
    """

    seconds: list[NDArray[np.float64]] = field(default_factory=list)
    covered: list[NDArray[np.bool_]] = field(default_factory=list)
    widths: list[NDArray[np.float64]] = field(default_factory=list)

    def add(
        self,
        truth: Sequence[float],
        median: Sequence[float],
        interval: tuple[Sequence[float], Sequence[float]] | None = None,
    ) -> None:
        """Adds a sound; a boundary whose true time is nan, or None, is not known."""
        true = np.array(truth, float)
        is_known = np.isfinite(true)
        self.seconds.append((np.array(median) - true)[is_known])
        if interval is not None:
            low, high = (np.array(end)[is_known] for end in interval)
            self.covered.append((low <= true[is_known]) & (true[is_known] <= high))
            self.widths.append(high - low)

    def extend(self, other: TimeErrors) -> None:
        """Adds the sounds of others."""
        for name, values in vars(other).items():
            getattr(self, name).extend(values)

    def without_bias(self, bias: float) -> TimeErrors:
        """The errors of times from which a bias is taken."""
        return TimeErrors([seconds - bias for seconds in self.seconds])

    @property
    def bias(self) -> float:
        """The median error."""
        return float(np.median(np.concatenate(self.seconds)))

    def summary(self, level: float = 0.9) -> dict[str, Any]:
        """Shares in per cent, each with a 95 % interval over sounds; seconds of other figures.

        Of a single sound whose times are known a share has no interval.

        Args:
            level: The nominal probability of the intervals of times, which names their coverage.
        """
        within = {
            f"{round(1000 * limit)} ms": _share([np.abs(s) <= limit for s in self.seconds])
            for limit in LIMITS
        }
        both: dict[str, Any] = {
            "sounds": sum(len(seconds) > 0 for seconds in self.seconds),
            "boundaries": sum(map(len, self.seconds)),
            "within": within,
            "mean_error": round(float(np.abs(np.concatenate(self.seconds)).mean()), 4),
            "bias": round(self.bias, 4),
        }
        if self.covered:
            both[f"coverage_of_{round(100 * level)}"] = _share(self.covered)
            both["mean_width"] = round(float(np.concatenate(self.widths).mean()), 4)
        return both


def join(errors: Sequence[TimeErrors]) -> TimeErrors:
    """Errors of several kinds of boundaries, by sound."""
    first = [np.concatenate(parts) for parts in zip(*(e.seconds for e in errors))]
    covered = [np.concatenate(parts) for parts in zip(*(e.covered for e in errors))]
    widths = [np.concatenate(parts) for parts in zip(*(e.widths for e in errors))]
    return TimeErrors(first, covered, widths)


def _share(hits: Sequence[NDArray[np.bool_]]) -> list[float]:
    """A share in per cent, and Wilson's interval with the effective number of words."""
    share, variance, quantile = _ratio([(hit.sum(), len(hit)) for hit in hits])
    if math.isnan(quantile):
        return _in_percent(share)
    of_word, words = share * (1 - share), sum(map(len, hits))
    effective = min(of_word / variance, words) if variance > 0 else words
    scale = quantile**2 / effective
    centre = (share + scale / 2) / (1 + scale)
    width = math.sqrt(scale * of_word + scale**2 / 4) / (1 + scale)
    return _in_percent(share, centre - width, centre + width)


def differences(errors: TimeErrors, others: TimeErrors) -> dict[str, list[float]]:
    """Shares near the truth less those of others in points, with 95 % intervals over sounds."""
    pairs = [*zip(errors.seconds, others.seconds, strict=True)]
    both = {}
    for limit in LIMITS:
        hits = [((np.abs(a) <= limit).sum() - (np.abs(b) <= limit).sum(), len(a)) for a, b in pairs]
        difference, variance, quantile = _ratio(hits)
        width = quantile * math.sqrt(variance)  # nan of one sound; none if all have the same
        ends = (difference - width, difference + width) if width > 0 else ()
        both[f"{round(1000 * limit)} ms"] = _in_percent(difference, *ends)
    return both


def _ratio(counts: Sequence[tuple[int, int]]) -> tuple[float, float, float]:
    """A ratio of sums over known sounds, its variance, the quantile of Student's t; nan of one."""
    from scipy.special import stdtrit  # slow to import

    hits, totals = np.array([count for count in counts if count[1]], float).T
    sounds, ratio = len(hits), float(hits.sum() / totals.sum())
    if sounds < 2:
        return ratio, math.nan, math.nan
    variance = ((hits - ratio * totals) ** 2).sum() * sounds / (sounds - 1) / totals.sum() ** 2
    return ratio, float(variance), float(stdtrit(sounds - 1, 0.975))


def _in_percent(*values: float) -> list[float]:
    return [round(100 * value, 1) for value in values]


def word_time_errors(
    times: Mapping[str, Sequence[WordTime]],
    truth: Mapping[str, Sequence[float]],
    boundary: Literal["start", "end"] = "start",
) -> TimeErrors:
    """The errors of the starts of words, or of their ends.

    ::

        times = time_words(whisper, processor, sounds, texts)
        errors = word_time_errors(times, {"talk": [0.31, 0.62, float("nan")]})
        errors.summary()["within"]["50 ms"]  # per cent, and its interval

    Args:
        times: The words of each sound, as :func:`.time_words` returns them.
        truth: The true seconds of every word of a sound, nan where they are not known. Sounds
            without are left out.
        boundary: start or end.

    Raises:
        ValueError: A sound has no times, or another number of words, or nothing is known.
    """
    check_choice("boundary", boundary, ("start", "end"))
    prefix = "" if boundary == "start" else "end_"
    errors = TimeErrors()
    for sound, seconds in truth.items():
        check_choice("truth", sound, times)
        words = times[sound]
        with naming(sound):
            check_as_many("true times", seconds, "words", words)
        bounds = [[getattr(word, prefix + name) for word in words] for name in ("low", "high")]
        interval = None if None in bounds[0] else (bounds[0], bounds[1])
        errors.add(seconds, [getattr(word, boundary) for word in words], interval)
    check_not_empty("true times", [*chain.from_iterable(errors.seconds)])
    return errors
