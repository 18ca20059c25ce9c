"""Recordings longer than Whisper takes: sentences joined to one sound, and cut at its pauses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from latentheads.contrib.speech.time_errors import (
    TimeErrors,
    differences,
    word_time_errors,
)
from latentheads.contrib.speech.timing import time_words
from latentheads.contrib.speech.windows import split_at_pauses
from latentheads.experiments.studies.word_times.cache import Recorder
from latentheads.experiments.studies.word_times.espeak import RATE
from latentheads.experiments.studies.word_times.speech import Utterance

PAUSES = (0, 4)
"""Seconds of silence after each sentence, besides its own."""

LONGEST = 30


def measure_long(recorder: Recorder, sentences: Sequence[Utterance]) -> dict[str, Any]:
    """Errors in recordings of all sentences, and less those of sentence after sentence.

    Heads learn from the same sounds, without labels; the text is given as a whole.
    """
    sounds = {sentence.name: sentence.samples for sentence in sentences}
    texts = {sentence.name: sentence.words for sentence in sentences}
    alone = time_words(recorder.whisper, recorder.processor, sounds, texts)
    errors_alone = word_time_errors(alone, {s.name: s.starts for s in sentences})
    results: dict[str, Any] = {"sentence by sentence": _summarise(errors_alone, sentences)}
    for pause in PAUSES:
        padded = [
            replace(sentence, samples=np.pad(sentence.samples, (0, pause * RATE)))
            for sentence in sentences
        ]
        whole = np.concatenate([sentence.samples for sentence in padded])
        errors = find_joined(recorder, padded)
        results[f"{pause} s"] = {
            "seconds": round(len(whole) / RATE, 1),
            "windows": len(split_at_pauses(whole, RATE, LONGEST)),
            **_summarise(errors, sentences),
            "less_alone": differences(errors, errors_alone),
        }
    return results


def find_joined(recorder: Recorder, utterances: Sequence[Utterance]) -> TimeErrors:
    """The errors of the words of each utterance where all of them are one sound and one text."""
    whole = np.concatenate([utterance.samples for utterance in utterances])
    words = [word for utterance in utterances for word in utterance.words]
    found = time_words(recorder.whisper, recorder.processor, {"all": whole}, {"all": words})
    times = iter(found["all"])
    by_utterance = {u.name: [next(times) for _ in u.words] for u in utterances}
    lengths = [len(utterance.samples) for utterance in utterances]
    offsets = np.cumsum([0, *lengths])[:-1] / RATE
    starts = {u.name: offset + u.starts for u, offset in zip(utterances, offsets, strict=True)}
    return word_time_errors(by_utterance, starts)


def _summarise(errors: TimeErrors, sentences: Sequence[Utterance]) -> dict[str, Any]:
    """Errors of all words, of the first ones of sentences, and of those after them."""
    first, others = TimeErrors(), TimeErrors()
    for index, sentence in enumerate(sentences):
        is_first = np.flatnonzero(np.isfinite(sentence.starts)) == 0
        for name, parts in vars(errors).items():
            getattr(first, name).append(parts[index][is_first])
            getattr(others, name).append(parts[index][~is_first])
    return {**errors.summary(), "first_words": first.summary(), "others": others.summary()}
