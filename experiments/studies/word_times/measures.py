"""How far word times are from the truth, with intervals over utterances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latentheads.contrib.heads.alignment_heads import AlignmentHeads, fit_alignment_heads
from latentheads.contrib.heads.boundaries.fit import FitOptions
from latentheads.contrib.heads.dtw_heads import WarpedExample, choose_for_dtw
from latentheads.contrib.heads.head_exports import LIKELY
from latentheads.contrib.heads.word_attention import WHISPER_STEP, Head
from latentheads.experiments.studies.word_times.cache import CachedUtterance
from latentheads.experiments.studies.word_times.rivals import RIVALS, Rival, warped_times
from latentheads.metrics.resampling import Resamples, resample_counts

LIMITS = (0.02, 0.05, 0.1, 0.2)
"""Seconds within which a boundary counts as right."""

KINDS = ("starts", "ends")

RESAMPLES = 2000


@dataclass
class Errors:
    """Errors of a kind of boundary, an array for each utterance; known boundaries alone.

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
        """Adds an utterance."""
        true = np.array(truth)
        is_known = np.isfinite(true)
        self.seconds.append((np.array(median) - true)[is_known])
        if interval is not None:
            low, high = (np.array(end)[is_known] for end in interval)
            self.covered.append((low <= true[is_known]) & (true[is_known] <= high))
            self.widths.append(high - low)

    def extend(self, other: Errors) -> None:
        """Adds the utterances of others."""
        for name, values in vars(other).items():
            getattr(self, name).extend(values)

    def without_bias(self, bias: float) -> Errors:
        """The errors of times from which a bias is taken."""
        return Errors([seconds - bias for seconds in self.seconds])

    @property
    def bias(self) -> float:
        """The median error."""
        return float(np.median(np.concatenate(self.seconds)))

    def summary(self) -> dict[str, Any]:
        """Shares in per cent, each with a 95 % interval over utterances."""
        within = {
            f"{round(1000 * limit)} ms": _share([np.abs(s) <= limit for s in self.seconds])
            for limit in LIMITS
        }
        both: dict[str, Any] = {
            "boundaries": sum(map(len, self.seconds)),
            "within": within,
            "mean_error": round(float(np.abs(np.concatenate(self.seconds)).mean()), 4),
            "bias": round(self.bias, 4),
        }
        if self.covered:
            both["coverage_of_90"] = _share(self.covered)
            both["mean_width"] = round(float(np.concatenate(self.widths).mean()), 4)
        return both


def join(errors: Sequence[Errors]) -> Errors:
    """Errors of several kinds of boundaries, by utterance."""
    first = [np.concatenate(parts) for parts in zip(*(e.seconds for e in errors))]
    covered = [np.concatenate(parts) for parts in zip(*(e.covered for e in errors))]
    widths = [np.concatenate(parts) for parts in zip(*(e.widths for e in errors))]
    return Errors(first, covered, widths)


def _share(hits: Sequence[NDArray[np.bool_]]) -> list[float]:
    """A share in per cent, and a 95 % interval over utterances."""
    return _resample([(hit.sum(), len(hit)) for hit in hits])


def _resample(counts: Sequence[tuple[int, int]]) -> list[float]:
    """The ratio of two sums over utterances in per cent, and a 95 % interval over utterances."""
    indices = Resamples(len(counts), RESAMPLES, 0)
    share, shares = resample_counts(
        np.array(counts, float), lambda sums: sums[0] / sums[1], indices
    )
    return [round(100 * float(value), 1) for value in (share, *np.quantile(shares, (0.025, 0.975)))]


def fit_heads(
    utterances: Sequence[CachedUtterance], labelled: bool, options: FitOptions | None = None
) -> AlignmentHeads:
    """Heads that learn from utterances, with their times or without."""
    attentions = [utterance.attention(labelled) for utterance in utterances]
    return fit_alignment_heads(utterances[0].heads, attentions, options=options)


def measure_alone(
    pool: Sequence[CachedUtterance], utterances: Sequence[CachedUtterance]
) -> dict[str, Any]:
    """The errors of heads of a pool, and of those that each utterance alone shows, all unlabelled.

    Both learn starts.
    """
    kept, alone = fit_heads(pool, labelled=False, options=FitOptions()), Errors()
    for utterance in utterances:
        heads = fit_heads([utterance], labelled=False, options=FitOptions())
        alone.extend(head_errors(heads, [utterance])["starts"])
    of_pool = head_errors(kept, utterances)["starts"]
    rows = {"pool": of_pool.summary(), "alone": alone.summary()}
    return {**rows, "pool_less_alone": differences(of_pool, alone)}


def only_listed(utterance: CachedUtterance) -> CachedUtterance:
    """An utterance with the attention of the heads of OpenAI's list alone."""
    indices = [utterance.heads.index(head) for head in utterance.listed]
    return replace(utterance, weights=utterance.weights[indices], heads=utterance.listed)


def average_listed(utterance: CachedUtterance) -> CachedUtterance:
    """An utterance with one head in place of all: the mean of those of OpenAI's list."""
    mean = only_listed(utterance).weights.float().mean(0, keepdim=True)
    return replace(utterance, weights=mean, heads=utterance.listed[:1])


def head_errors(heads: AlignmentHeads, utterances: Sequence[CachedUtterance]) -> dict[str, Errors]:
    """The errors of alignment heads, by kind of boundary."""
    errors = {kind: Errors() for kind in KINDS[: heads.model.chain.kinds]}
    for utterance in utterances:
        times = heads.times(utterance.attention(labelled=False), bounded=False)
        for index, kind in enumerate(errors):
            predicted = times[kind]
            ends = (predicted.low.tolist(), predicted.high.tolist())
            errors[kind].add(utterance.boundaries(index), predicted.median.tolist(), ends)
    return errors


def measure_heads(
    heads: AlignmentHeads,
    utterances: Sequence[CachedUtterance],
    others: dict[str, Errors] | None = None,
) -> dict[str, Any]:
    """The errors of alignment heads, by kind of boundary and together, and less those of others."""
    errors = head_errors(heads, utterances)
    if others is None:
        return _summaries(errors)
    both = join(list(errors.values())), join(list(others.values()))
    return _summaries(errors) | {"less_all": differences(*both)}


def differences(errors: Errors, others: Errors) -> dict[str, list[float]]:
    """Shares near the truth less those of others in points, with 95 % intervals over utterances."""
    pairs = [*zip(errors.seconds, others.seconds, strict=True)]
    return {
        f"{round(1000 * limit)} ms": _resample(
            [((np.abs(a) <= limit).sum() - (np.abs(b) <= limit).sum(), len(a)) for a, b in pairs]
        )
        for limit in LIMITS
    }


def measure_rivals(
    utterances: Sequence[CachedUtterance], pool: Sequence[CachedUtterance], kinds: int
) -> dict[str, Any]:
    """The errors of dynamic time warping, as it is and without the bias that it has on a pool."""
    results = {}
    for name, rival in RIVALS.items():
        errors, biases = (_warped_errors(part, rival, kinds) for part in (utterances, pool))
        results[name] = _summaries(errors)
        freed = {kind: e.without_bias(biases[kind].bias) for kind, e in errors.items()}
        results[f"{name}, bias removed"] = _summaries(freed)
    return results


def _warped_errors(
    utterances: Sequence[CachedUtterance], rival: Rival, kinds: int
) -> dict[str, Errors]:
    """The errors of dynamic time warping, by kind of boundary."""
    errors = {kind: Errors() for kind in KINDS[:kinds]}
    for utterance in utterances:
        times = warped_times(utterance, rival)
        for index, kind in enumerate(errors):
            errors[kind].add(utterance.boundaries(index), times[index])
    return errors


def list_for_dtw(heads: AlignmentHeads, pool: Sequence[CachedUtterance]) -> list[Head]:
    """The list for programs that warp time, chosen on a pool without its labels."""
    examples = [
        WarpedExample.of(
            utterance.weights[..., : utterance.whole_positions],
            utterance.spans,
            heads.times(utterance.attention(False), bounded=False),
            WHISPER_STEP,
        )
        for utterance in pool
    ]
    return choose_for_dtw(heads.heads, examples)


def measure_lists(
    heads: AlignmentHeads, warped: Sequence[Head], utterances: Sequence[CachedUtterance]
) -> dict[str, Any]:
    """The errors of dynamic time warping by lists of heads, and less those by OpenAI's list.

    Args:
        heads: Heads that were learned without labels.
        warped: The list for programs that warp time, of :func:`list_for_dtw`.
        utterances: On which the lists are tested.
    """
    likely = [head for head, probability in heads.probabilities.items() if probability > LIKELY]
    lists = {
        "openai": utterances[0].listed,
        "likely": likely,
        "chosen": heads.chosen,
        "sufficient": heads.sufficient(),
        "dtw": warped,
    }
    results: dict[str, Any] = {}
    for program in ("openai", "transformers"):
        errors = {}
        for name, listed in lists.items():
            relisted = [replace(utterance, listed=[*listed]) for utterance in utterances]
            kinds = _warped_errors(relisted, RIVALS[program], heads.model.chain.kinds)
            errors[name] = join([*kinds.values()])
        results[program] = {
            name: {
                **error.summary(),
                "heads": len(lists[name]),
                "less_openai": differences(error, errors["openai"]),
            }
            for name, error in errors.items()
        }
    return results


def _summaries(errors: dict[str, Errors]) -> dict[str, Any]:
    summaries = {kind: error.summary() for kind, error in errors.items()}
    if len(errors) > 1:
        summaries["both"] = join(list(errors.values())).summary()
    return summaries
