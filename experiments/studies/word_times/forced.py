"""Word times of a forced aligner: PocketSphinx, hidden Markov models of phones.

It looks words up in a dictionary of English; utterances with other words are left out. Shares on
``dev`` are the same with beams from 1e-60 to 1e-120; the default ones lose half of the paths.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from string import punctuation
from typing import Any

import numpy as np

from latentheads.contrib.heads.alignment_heads import AlignmentHeads
from latentheads.contrib.heads.boundaries.fit import FitOptions
from latentheads.experiments.studies.word_times.cache import CachedUtterance
from latentheads.experiments.studies.word_times.espeak import RATE
from latentheads.experiments.studies.word_times.measures import (
    KINDS,
    LIMITS,
    RESAMPLES,
    Errors,
    fit_heads,
    join,
)
from latentheads.experiments.studies.word_times.speech import Utterance
from latentheads.metrics.resampling import Resamples, resample_counts
from latentheads.packages import MissingPackageError

Times = tuple[list[float], list[float]]
"""Seconds at which words start, and end."""

BEAM, FRAME = 1e-100, 0.01
"""Beams of its search, and seconds of its frames."""


class ForcedAligner:
    """The American English models that PocketSphinx comes with, and its dictionary."""

    def __init__(self) -> None:
        try:
            pocketsphinx = import_module("pocketsphinx")
        except ImportError as error:
            raise MissingPackageError(
                "the forced aligner needs pocketsphinx: pip install pocketsphinx"
            ) from error
        beams = dict.fromkeys(("beam", "pbeam", "wbeam"), BEAM)
        # dither: the logarithm of digital silence is infinite; no second search of the lattice,
        # which loses paths that the first one has
        self.decoder = pocketsphinx.Decoder(
            lm=None, samprate=RATE, dither=True, seed=1, bestpath=False, loglevel="FATAL", **beams
        )

    def times(self, utterance: Utterance) -> Times | None:
        """Seconds at which words start and end; None without a pronunciation or a path."""
        words = [word.lower().strip(punctuation) for word in utterance.words]
        if None in map(self.decoder.lookup_word, words):
            return None
        self.decoder.set_align_text(" ".join(words))
        self.decoder.start_utt()
        samples = (utterance.samples.clip(-1, 1) * (2**15 - 1)).astype(np.int16)
        self.decoder.process_raw(samples.tobytes(), full_utt=True)
        self.decoder.end_utt()
        if self.decoder.hyp() is None:
            return None
        segments = [s for s in self.decoder.seg() if not s.word.startswith(("<", "["))]
        if len(segments) < len(words):
            return None
        return (
            [segment.start_frame * FRAME for segment in segments],
            [(segment.end_frame + 1) * FRAME for segment in segments],
        )


@dataclass(frozen=True)
class Compared:
    """The utterances of a set that the aligner has times of, with these times.

    Attributes:
        utterances: The utterances.
        times: Their times, of the aligner.
        left_out: The names of the others.
    """

    utterances: list[CachedUtterance]
    times: list[Times]
    left_out: list[str]


def align_sets(
    sounds: Iterable[Utterance], sets: dict[str, list[CachedUtterance]], names: Sequence[str]
) -> dict[str, Compared]:
    """Aligns all utterances of some sets."""
    aligner = ForcedAligner()
    cached = {utterance.name: utterance for name in names for utterance in sets[name]}
    compared = {name: Compared([], [], []) for name in names}
    for sound in sounds:
        if sound.name not in cached:
            continue
        part = compared[sound.name.partition("/")[0]]
        times = aligner.times(sound)
        if times is None:
            part.left_out.append(sound.name)
        else:
            part.utterances.append(cached[sound.name])
            part.times.append(times)
    return compared


def measure_forced(
    taught: Compared,
    tests: dict[str, Compared],
    pool: Sequence[CachedUtterance],
    kinds: int,
) -> dict[str, Any]:
    """The aligner and alignment heads on the same utterances, with their difference.

    Args:
        taught: The pool with the aligner's times, from which heads learn, too.
        tests: The sets of tests, by name.
        pool: What heads learn from: five utterances with their times, or all without.
        kinds: 1 for starts, 2 for ends too.
    """
    options = FitOptions(kinds=kinds)
    lessons = [
        replace(utterance, starts=starts, ends=ends if kinds == 2 else None)
        for utterance, (starts, ends) in zip(taught.utterances, taught.times)
    ]
    heads = {
        "0 labelled": fit_heads(pool, False, options),
        "5 labelled": fit_heads(pool[:5], True, options),
        "taught": fit_heads(lessons, True, options),
    }
    return {name: _measure(test, heads, kinds) for name, test in tests.items()}


def _measure(test: Compared, heads: dict[str, AlignmentHeads], kinds: int) -> dict[str, Any]:
    """One set: shares of the aligner and of heads, and heads less aligner."""
    aligner = join([_errors(test, test.times, kind) for kind in range(kinds)])
    results: dict[str, Any] = {"left_out": test.left_out, "pocketsphinx": aligner.summary()}
    for name, fit in heads.items():
        errors = join([_head_errors(test, fit, kind) for kind in range(kinds)])
        results[name] = errors.summary() | {"less_aligner": _differences(errors, aligner)}
    return results


def _errors(test: Compared, times: Sequence[Sequence[Sequence[float]]], kind: int) -> Errors:
    errors = Errors()
    for utterance, predicted in zip(test.utterances, times):
        errors.add(utterance.boundaries(kind), predicted[kind])
    return errors


def _head_errors(test: Compared, heads: AlignmentHeads, kind: int) -> Errors:
    errors = Errors()
    for utterance in test.utterances:
        times = heads.times(utterance.attention(labelled=False), bounded=False)[KINDS[kind]]
        interval = (times.low.tolist(), times.high.tolist())
        errors.add(utterance.boundaries(kind), times.median.tolist(), interval)
    return errors


def _differences(errors: Errors, others: Errors) -> dict[str, list[float]]:
    """Shares near the truth less those of others in points, with 95 % intervals over utterances."""
    indices = Resamples(len(errors.seconds), RESAMPLES, 0)
    differences = {}
    for limit in LIMITS:
        counts = np.array(
            [
                ((np.abs(a) <= limit).sum() - (np.abs(b) <= limit).sum(), len(a))
                for a, b in zip(errors.seconds, others.seconds)
            ],
            float,
        )
        share, shares = resample_counts(counts, lambda sums: sums[0] / sums[1], indices)
        ends = np.quantile(shares, (0.025, 0.975))
        differences[f"{round(1000 * limit)} ms"] = [
            round(100 * float(value), 1) for value in (share, *ends)
        ]
    return differences
