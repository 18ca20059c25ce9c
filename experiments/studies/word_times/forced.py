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
from latentheads.contrib.speech.time_errors import TimeErrors, differences, join
from latentheads.experiments.studies.word_times.cache import CachedUtterance
from latentheads.experiments.studies.word_times.espeak import RATE
from latentheads.experiments.studies.word_times.measures import fit_heads, head_errors
from latentheads.experiments.studies.word_times.speech import Utterance
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
        errors = join(list(head_errors(fit, test.utterances).values()))
        results[name] = errors.summary() | {"less_aligner": differences(errors, aligner)}
    return results


def _errors(test: Compared, times: Sequence[Sequence[Sequence[float]]], kind: int) -> TimeErrors:
    errors = TimeErrors()
    for utterance, predicted in zip(test.utterances, times):
        errors.add(utterance.boundaries(kind), predicted[kind])
    return errors
