"""How far the times of words are from the truth, with intervals over sounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from latentheads.checks import check_as_many, check_choice, check_not_empty
from latentheads.contrib.speech.word_times import WordTime
from latentheads.errors import naming
from latentheads.metrics.resampling import Resamples, resample_counts

LIMITS = (0.02, 0.05, 0.1, 0.2)
"""Seconds within which a boundary counts as right."""

RESAMPLES = 2000

MIN_SOUNDS = 10
"""Fewest sounds of an interval: resamples of fewer differ too little."""


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

        A share has no interval of fewer than ten sounds with known boundaries, or where all
        resamples are equal, as at 100 per cent. Of fewer than 30 sounds intervals are too narrow,
        of shares near 100 per cent the most.

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
    """A share in per cent, and its interval."""
    return _resample([(hit.sum(), len(hit)) for hit in hits])


def _resample(counts: Sequence[tuple[int, int]]) -> list[float]:
    """The ratio of two sums over sounds in per cent, and a 95 % interval if there are enough."""
    rows = np.array([count for count in counts if count[1]], float)  # sounds that are known
    indices = Resamples(len(rows), RESAMPLES, 0)
    share, shares = resample_counts(rows, lambda sums: sums[0] / sums[1], indices)
    low, high = np.quantile(shares, (0.025, 0.975))
    is_interval = len(rows) >= MIN_SOUNDS and low < high  # all resamples are equal: no interval
    values = (share, low, high) if is_interval else (share,)
    return [round(100 * float(value), 1) for value in values]


def differences(errors: TimeErrors, others: TimeErrors) -> dict[str, list[float]]:
    """Shares near the truth less those of others in points, with 95 % intervals over sounds."""
    pairs = [*zip(errors.seconds, others.seconds, strict=True)]
    return {
        f"{round(1000 * limit)} ms": _resample(
            [((np.abs(a) <= limit).sum() - (np.abs(b) <= limit).sum(), len(a)) for a, b in pairs]
        )
        for limit in LIMITS
    }


def word_time_errors(
    times: Mapping[str, Sequence[WordTime]],
    truth: Mapping[str, Sequence[float]],
    boundary: Literal["start", "end"] = "start",
) -> TimeErrors:
    """The errors of the starts of words, or of their ends.

    ::

        times = time_words(whisper, processor, sounds, texts)
        errors = word_time_errors(times, {"talk": [0.31, 0.62, float("nan")]})
        errors.summary()["within"]["50 ms"]  # per cent; of ten sounds or more low and high, too

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
