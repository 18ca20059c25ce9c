"""Natural speech, of which no times are known: how often heads agree with a forced aligner.

Two methods that err independently agree the more the nearer both are to the truth. Words are those
that Whisper transcribes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from latentheads.contrib.speech.forced import transcribe_words
from latentheads.contrib.speech.waveform import read_waveform, resample
from latentheads.experiments.studies.word_times.cache import CachedUtterance, Recorder
from latentheads.experiments.studies.word_times.espeak import RATE
from latentheads.experiments.studies.word_times.forced import ForcedAligner
from latentheads.experiments.studies.word_times.long_sounds import find_joined
from latentheads.experiments.studies.word_times.measures import (
    fit_heads,
    measure_heads,
    measure_rivals,
)
from latentheads.experiments.studies.word_times.speech import Utterance

LEAST_WORDS = 5


def transcribe(folder: Path, recorder: Recorder) -> Iterator[Utterance]:
    """The sounds of a folder with at least five words, of at most 30 seconds each.

    Sounds whose transcript repeats itself or was cut off are left out.
    """
    for path in sorted(folder.glob("*.wav")):
        samples = resample(read_waveform(path), RATE)
        if len(samples) > 30 * RATE:
            continue
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            words = transcribe_words(recorder.whisper, recorder.processor, samples)
        if len(words) >= LEAST_WORDS and not caught:
            yield Utterance(path.stem, words, samples, [])


def measure_agreement(
    folder: Path, recorder: Recorder, pool: Sequence[CachedUtterance]
) -> dict[str, Any]:
    """How far heads, and others, are from the times of a forced aligner.

    Args:
        folder: The sounds.
        recorder: Records the attention of Whisper.
        pool: Sentences of synthetic speech, from which heads learn without their times.
    """
    aligner, aligned, left_out = ForcedAligner(), [], []
    for utterance in transcribe(folder, recorder):
        times = aligner.times(utterance)
        if times is None:
            left_out.append(utterance.name)
        else:
            starts, ends = times
            aligned.append(replace(utterance, starts=starts, ends=ends))
    natural = [recorder.record(utterance) for utterance in aligned]
    learned = {"synthetic speech": fit_heads(pool, False)}
    learned["these recordings"] = fit_heads(natural, False)
    results = {
        f"learned from {name}": measure_heads(heads, natural)["starts"]
        for name, heads in learned.items()
    }
    results["joined to one sound"] = find_joined(recorder, aligned).summary()
    # the bias of others is that of synthetic speech, where it is known
    results |= {name: row["starts"] for name, row in measure_rivals(natural, pool, 1).items()}
    return {"utterances": len(natural), "left_out": left_out, "agreement": results}
