"""Recordings longer than Whisper takes: sentences joined to one sound, and cut at its pauses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from latentheads.contrib.speech.timing import time_words
from latentheads.contrib.speech.windows import split_at_pauses
from latentheads.contrib.speech.word_times import WordTime
from latentheads.experiments.studies.word_times.cache import Recorder
from latentheads.experiments.studies.word_times.espeak import RATE
from latentheads.experiments.studies.word_times.measures import Errors, differences
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
    errors_alone = _collect(alone, sentences, np.zeros(len(sentences)))
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


def find_joined(recorder: Recorder, utterances: Sequence[Utterance]) -> Errors:
    """The errors of the words of each utterance where all of them are one sound and one text."""
    whole = np.concatenate([utterance.samples for utterance in utterances])
    words = [word for utterance in utterances for word in utterance.words]
    found = time_words(recorder.whisper, recorder.processor, {"all": whole}, {"all": words})
    times = iter(found["all"])
    by_utterance = {u.name: [next(times) for _ in u.words] for u in utterances}
    lengths = [len(utterance.samples) for utterance in utterances]
    return _collect(by_utterance, utterances, np.cumsum([0, *lengths])[:-1] / RATE)


def _collect(
    found: dict[str, list[WordTime]], sentences: Sequence[Utterance], offsets: np.ndarray
) -> Errors:
    """The errors of the words of each sentence."""
    errors = Errors()
    for sentence, offset in zip(sentences, offsets, strict=True):
        rows = [(word.start, word.low, word.high) for word in found[sentence.name]]
        median, low, high = (np.array(rows) - offset).T
        errors.add(sentence.starts, median.tolist(), (low.tolist(), high.tolist()))
    return errors


def _summarise(errors: Errors, sentences: Sequence[Utterance]) -> dict[str, Any]:
    """Errors of all words, of the first ones of sentences, and of those after them."""
    first, others = Errors(), Errors()
    for index, sentence in enumerate(sentences):
        is_first = np.flatnonzero(np.isfinite(sentence.starts)) == 0
        for name, parts in vars(errors).items():
            getattr(first, name).append(parts[index][is_first])
            getattr(others, name).append(parts[index][~is_first])
    return {**errors.summary(), "first_words": first.summary(), "others": others.summary()}
